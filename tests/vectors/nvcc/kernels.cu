// Kernels with known answers for the PTX emulator (see tests/emulator/ptx/test_nvcc.py), compiled by nvcc 13.5:
//   nvcc -std=c++17 -ptx -arch=sm_80 -o kernels.sm_80.ptx kernels.cu   (and sm_90a)
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
#include <cuda_pipeline.h>
#include <cooperative_groups.h>
#include <cstdint>
#include <cassert>
#include <cstdio>
#define K extern "C" __global__ void
#define GID (blockIdx.x*blockDim.x + threadIdx.x)
typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
namespace cg = cooperative_groups;
K reduce_block(const float*a, float*o,int n){ __shared__ float s[256]; int t=threadIdx.x; float v=0; for(int i=GID;i<n;i+=gridDim.x*blockDim.x) v+=a[i]; s[t]=v; __syncthreads(); for(int k=128;k>0;k>>=1){ if(t<k) s[t]+=s[t+k]; __syncthreads(); } if(t==0) atomicAdd(o,s[0]); }
K hist(const int*a,int*o,int n){ __shared__ int h[64]; if(threadIdx.x<64) h[threadIdx.x]=0; __syncthreads(); int i=GID; if(i<n) atomicAdd(&h[a[i]&63],1); __syncthreads(); if(threadIdx.x<64) atomicAdd(&o[threadIdx.x],h[threadIdx.x]); }
K transpose(const float*a,float*o,int n){ __shared__ float t[32][33]; int x=blockIdx.x*32+threadIdx.x,y=blockIdx.y*32+threadIdx.y; for(int j=0;j<32;j+=8) if(x<n&&y+j<n) t[threadIdx.y+j][threadIdx.x]=a[(y+j)*n+x]; __syncthreads(); x=blockIdx.y*32+threadIdx.x;y=blockIdx.x*32+threadIdx.y; for(int j=0;j<32;j+=8) if(x<n&&y+j<n) o[(y+j)*n+x]=t[threadIdx.x][threadIdx.y+j]; }
K mathf(const float*a,float*o){ int i=GID; float x=a[i]; o+=i*16; o[0]=sinf(x*1000);o[1]=cosf(x);o[2]=expf(x);o[3]=logf(fabsf(x));o[4]=powf(fabsf(x),1.7f);o[5]=erff(x);o[6]=tanhf(x);o[7]=atan2f(x,0.3f);o[8]=sqrtf(fabsf(x));o[9]=1/x;o[10]=rsqrtf(fabsf(x));o[11]=fmodf(x,0.37f);o[12]=cbrtf(x);o[13]=lgammaf(x);o[14]=floorf(x)+rintf(x)+ceilf(x)+truncf(x)+roundf(x);o[15]=exp2f(x)+log10f(fabsf(x))+asinhf(x); }
K mathd(const double*a,double*o){ int i=GID; double x=a[i]; o+=i*8; o[0]=sin(x*1000);o[1]=exp(x);o[2]=log(fabs(x));o[3]=pow(fabs(x),1.7);o[4]=erf(x);o[5]=sqrt(fabs(x));o[6]=1/x;o[7]=tanh(x)+rsqrt(fabs(x)); }
K ints(const i64*a,const i64*b,i64*o){ int i=GID; i64 x=a[i],y=b[i]; o+=i*12; o[0]=x/y;o[1]=x%y;o[2]=(i64)((u64)x/(u64)y);o[3]=__mul64hi(x,y);o[4]=__popcll(x);o[5]=__clzll(x);o[6]=__ffsll(x);o[7]=__brevll(x);o[8]=x<<(y&63);o[9]=x>>(y&63);o[10]=__byte_perm((u32)x,(u32)y,0x3715)+(u64)__funnelshift_l((u32)x,(u32)y,7);o[11]=max(x,y)-min((int)x,(int)y)+__sad((int)x,(int)y,5)+__dp4a((int)x,(int)y,3)+__umulhi((u32)x,(u32)y)+(x>y?abs(x):llabs(y)); }
K halfs(const __half2*a,const __half2*b,__half2*o){ int i=GID; __half2 x=a[i],y=b[i]; o+=i*8; o[0]=__hadd2(x,y);o[1]=__hmul2(x,y);o[2]=__hfma2(x,y,x);o[3]=__h2div(x,y);o[4]=h2exp2(x);o[5]=__hmax2(x,y);o[6]=h2sqrt(__habs2(x));o[7]=__hgt2(x,y); }
K bfs(const __nv_bfloat162*a,const __nv_bfloat162*b,__nv_bfloat162*o){ int i=GID; auto x=a[i],y=b[i]; o+=i*6; o[0]=__hadd2(x,y);o[1]=__hmul2(x,y);o[2]=__hfma2(x,y,x);o[3]=__hmax2(x,y);o[4]=__hneg2(x);o[5]=__floats2bfloat162_rn(__low2float(x)*3.1f,__high2float(y)/7.f); }
K fp8s(const float*a,unsigned char*o,float*f){ int i=GID; __nv_fp8_e4m3 x(a[i]); __nv_fp8_e5m2 y(a[i]); o[2*i]=x.__x;o[2*i+1]=y.__x; f[2*i]=(float)x; f[2*i+1]=(float)y; }
using namespace nvcuda;
K wmma16(const __half*a,const __half*b,float*c,int n){ wmma::fragment<wmma::matrix_a,16,16,16,__half,wmma::row_major> fa; wmma::fragment<wmma::matrix_b,16,16,16,__half,wmma::col_major> fb; wmma::fragment<wmma::accumulator,16,16,16,float> fc; wmma::fill_fragment(fc,0.0f); for(int k=0;k<n;k+=16){ wmma::load_matrix_sync(fa,a+k,n); wmma::load_matrix_sync(fb,b+k,n); wmma::mma_sync(fc,fa,fb,fc);} for(int i=0;i<fc.num_elements;i++) fc.x[i]*=2.f; wmma::store_matrix_sync(c,fc,16,wmma::mem_row_major); }
K pipe(const float4*a,float4*o,int n){ extern __shared__ float4 sm[]; int t=threadIdx.x; for(int s=0;s<2&&s<n;s++){ __pipeline_memcpy_async(&sm[s*blockDim.x+t],&a[s*blockDim.x+t],16); __pipeline_commit(); } for(int s=0;s<n;s++){ __pipeline_wait_prior(s+1<n?1:0); __syncthreads(); float4 v=sm[(s%2)*blockDim.x+(t^1)]; o[s*blockDim.x+t]=make_float4(v.x+1,v.y,v.z,v.w); __syncthreads(); if(s+2<n) __pipeline_memcpy_async(&sm[(s%2)*blockDim.x+t],&a[(s+2)*blockDim.x+t],16); __pipeline_commit(); } }
__device__ __noinline__ int fib(int n){ int a=0,b=1; for(int i=0;i<n;i++){int c=a+b;a=b;b=c;} return a; }
__device__ __noinline__ float4 mix(float4 a,int k){ a.x+=k;a.y*=k; return a; }
K calls(const int*a,int*o,float4*f){ int i=GID; o[i]=fib(a[i]&15)+ (a[i]>3? fib(a[i]&7):0); f[i]=mix(f[i],a[i]&3); }
K sw(const int*a,int*o){ int i=GID,x=a[i],r; switch(x&15){case 0:r=x*3;break;case 1:r=x+7;break;case 2:r=x^99;break;case 3:r=-x;break;case 4:r=x/3;break;case 5:r=x%5;break;case 6:r=x<<2;break;case 7:r=x>>3;break;case 8: r=~x; default:r=17;} o[i]=r; }
K locals(const int*a,int*o){ int b[16]; for(int i=0;i<16;i++) b[i]=a[GID*16+i]; for(int i=1;i<16;i++){int v=b[i],j=i; while(j>0&&b[j-1]>v){b[j]=b[j-1];j--;} b[j]=v;} for(int i=0;i<16;i++) {o[GID*16+i]=b[i];} }
struct S{int a;float b[5];double c;short d;};
K structs(S s,float*o,int k){ o[GID]=s.a+s.b[k%5]+s.c+s.d+s.b[threadIdx.x%5]; }
K casmax(const float*a,float*o,int n){ int i=GID; if(i<n){ u32*p=(u32*)o; u32 old=*p; while(__uint_as_float(old)<a[i]){ u32 seen=atomicCAS(p,old,__float_as_uint(a[i])); if(seen==old)break; old=seen; } } }
K cgred(const int*a,int*o){ auto w=cg::tiled_partition<16>(cg::this_thread_block()); int v=a[GID]; for(int d=w.size()/2;d>0;d/=2) v+=w.shfl_down(v,d); if(w.thread_rank()==0) o[GID/16]=v; }
K scanb(const int*a,int*o,int n){ __shared__ int s[32]; int t=threadIdx.x,l=t&31,w=t>>5; int v=a[t]; for(int d=1;d<32;d<<=1){int y=__shfl_up_sync(~0u,v,d); if(l>=d)v+=y;} if(l==31)s[w]=v; __syncthreads(); if(w==0){int q=l<(blockDim.x>>5)?s[l]:0; for(int d=1;d<32;d<<=1){int y=__shfl_up_sync(~0u,q,d); if(l>=d)q+=y;} s[l]=q;} __syncthreads(); o[t]=v+(w?s[w-1]:0); }
__constant__ float ctab[8]={1,2,4,8,16,32,64,128};
__device__ int gcount=5;
K consts(float*o){ o[GID]=ctab[threadIdx.x&7]+gcount; __syncthreads(); if(GID==0) gcount=100; }
K asserts(const int*a,int*o){ int i=GID; assert(a[i]>=0); o[i]=a[i]+1; if(a[i]==12345) printf("hi %d\n",i); }
K divloop(const int*a,int*o){ int i=GID,x=a[i]&1023,s=0; for(int k=0;k<x;k++){ if(k%3==0) continue; if(k*k>x*7) break; s+=k; if((s&7)==5) s^=x; } o[i]=s; }
K volat(int*o){ volatile __shared__ int s[64]; int t=threadIdx.x; s[t]=t; __syncwarp(); int v=s[t^1]; __threadfence_block(); o[t]=v+__activemask()%7; }
K vecs(const char4*a,const short2*b,char4*o,u64*q){ int i=GID; char4 x=a[i]; short2 y=b[i]; x.x+=y.x; x.w-=y.y; o[i]=x; q[i]=((u64)clock64()>0)+ __isGlobal(o)+2*__isShared(o); }
K i8mm(const int*a,const int*b,int*c){ int l=threadIdx.x; int d0=0,d1=0,d2=0,d3=0; asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};":"=r"(d0),"=r"(d1),"=r"(d2),"=r"(d3):"r"(a[l*4]),"r"(a[l*4+1]),"r"(a[l*4+2]),"r"(a[l*4+3]),"r"(b[l*2]),"r"(b[l*2+1]),"r"(0),"r"(0),"r"(0),"r"(1)); c[l*4]=d0;c[l*4+1]=d1;c[l*4+2]=d2;c[l*4+3]=d3; }
