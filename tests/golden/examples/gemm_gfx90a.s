	.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
	.amdhsa_code_object_version 5
	.text
	.globl gemm
	.p2align 8
	.type gemm,@function
	.file 1 "examples" "gemm.py"
gemm:
	s_load_dwordx2          s[4:5], s[0:1], 0x0
	s_load_dwordx2          s[8:9], s[0:1], 0x8
	s_load_dwordx2          s[12:13], s[0:1], 0x10
	.loc 1 52 5
	s_lshl_b32              s0, s2, 5                       ; gemm.py:52  def gemm(a: wd.Memory[M, K, wd.SHARED, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, N, sums]):
	s_lshl_b32              s1, s3, 5
	v_readfirstlane_b32     s6, v0
	s_bfe_u32               s14, s6, 0x10006
	s_lshr_b32              s15, s6, 7
	.loc 1 57 27
	s_lshl_b32              s2, s2, 13                      ; gemm.py:57  return wd.mma(wd.read(a), wd.read(b), acc)
	v_and_b32_e32           v1, -8, v0
	v_add_lshl_u32          v1, v0, v1, 4
	s_mov_b32               s6, 0x4000
	s_mov_b32               s7, 0x27000
	s_waitcnt               lgkmcnt(0)
	buffer_load_dwordx4     v[2:5], v1, s[4:7], s2 offen
	.loc 1 57 39
	s_lshl_b32              s3, s3, 13
	s_mov_b64               s[10:11], s[6:7]
	buffer_load_dwordx4     v[6:9], v1, s[8:11], s3 offen
	.loc 1 57 27
	v_bfe_u32               v10, v0, 3, 3
	v_xor_b32_e32           v10, v0, v10
	v_lshlrev_b32_e32       v30, 4, v10
	s_waitcnt               vmcnt(0)
	ds_write_b128           v30, v[2:5]
	buffer_load_dwordx4     v[2:5], v1, s[4:7], s2 offen offset:128
	.loc 1 57 39
	ds_write_b128           v30, v[6:9] offset:8192
	.loc 1 55 10
	s_waitcnt               lgkmcnt(0)                      ; gemm.py:55  @wd.iterate(K, init_args=[acc])
	s_barrier
	.loc 1 57 39
	buffer_load_dwordx4     v[6:9], v1, s[8:11], s3 offen offset:128 ; gemm.py:57  return wd.mma(wd.read(a), wd.read(b), acc)
	.loc 1 57 27
	v_and_b32_e32           v1, 7, v0
	v_lshlrev_b32_e32       v1, 4, v1
	v_and_b32_e32           v31, 48, v0
	v_xor_b32_e32           v1, v1, v31
	v_and_b32_e32           v32, 15, v0
	v_lshl_add_u32          v0, v32, 7, v1
	s_lshl_b32              s2, s14, 11
	v_add_u32_e32           v1, s2, v0
	v_xor_b32_e32           v33, 64, v1
	.loc 1 57 39
	s_lshl_b32              s2, s15, 11
	v_add_u32_e32           v34, s2, v0
	v_xor_b32_e32           v35, 64, v34
	.loc 1 57 27
	ds_read_b128            v[10:13], v1
	.loc 1 57 39
	ds_read_b128            v[14:17], v34 offset:8192
	.loc 1 57 27
	ds_read_b128            v[18:21], v33
	.loc 1 57 39
	ds_read_b128            v[22:25], v35 offset:8192
	.loc 1 57 20
	s_waitcnt               lgkmcnt(1)
	v_mfma_f32_16x16x16f16  v[26:29], v[14:15], v[10:11], 0
	.loc 1 57 27
	s_waitcnt               vmcnt(1)
	ds_write_b128           v30, v[2:5] offset:4096
	.loc 1 57 20
	v_mfma_f32_16x16x16f16  v[26:29], v[16:17], v[12:13], v[26:29]
	.loc 1 57 39
	s_waitcnt               vmcnt(0)
	ds_write_b128           v30, v[6:9] offset:12288
	.loc 1 57 20
	s_waitcnt               lgkmcnt(2)
	v_mfma_f32_16x16x16f16  v[26:29], v[22:23], v[18:19], v[26:29]
	.loc 1 55 10
	s_waitcnt               lgkmcnt(0)                      ; gemm.py:55  @wd.iterate(K, init_args=[acc])
	s_barrier
	.loc 1 57 20
	v_mfma_f32_16x16x16f16  v[26:29], v[24:25], v[20:21], v[26:29] ; gemm.py:57  return wd.mma(wd.read(a), wd.read(b), acc)
	.loc 1 57 27
	ds_read_b128            v[0:3], v1 offset:4096
	.loc 1 57 39
	ds_read_b128            v[4:7], v34 offset:12288
	.loc 1 57 27
	ds_read_b128            v[8:11], v33 offset:4096
	.loc 1 57 39
	ds_read_b128            v[12:15], v35 offset:12288
	.loc 1 57 20
	s_waitcnt               lgkmcnt(1)
	v_mfma_f32_16x16x16f16  v[26:29], v[4:5], v[0:1], v[26:29]
	v_mfma_f32_16x16x16f16  v[26:29], v[6:7], v[2:3], v[26:29]
	s_waitcnt               lgkmcnt(0)
	v_mfma_f32_16x16x16f16  v[26:29], v[12:13], v[8:9], v[26:29]
	v_mfma_f32_16x16x16f16  v[26:29], v[14:15], v[10:11], v[26:29]
	.loc 1 59 9
	s_lshl4_add_u32         s0, s14, s0                     ; gemm.py:59  wd.write(loop, c)
	s_lshl_b32              s0, s0, 8
	s_lshl4_add_u32         s1, s15, s1
	v_lshl_add_u32          v0, v32, 8, v31
	s_mov_b64               s[14:15], s[6:7]
	s_lshl2_add_u32         s0, s1, s0
	s_nop                   4
	buffer_store_dwordx4    v[26:29], v0, s[12:15], s0 offen
	s_endpgm
.Lgemm_end:
	.size gemm, .Lgemm_end-gemm
	.p2alignl 6, 3212836864
	.fill 256, 4, 3212836864
	.section .rodata
	.p2align 6
	.amdhsa_kernel gemm
		.amdhsa_group_segment_fixed_size 16384
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 24
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_count 2
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 1
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 36
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 36
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
	.end_amdhsa_kernel
	.text
	.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx90a
amdhsa.kernels:
  - .name: gemm
    .symbol: gemm.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 16384
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 36
    .agpr_count: 0
    .max_flat_workgroup_size: 256
    .args:
      - {.name: a, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: b, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: c, .offset: 16, .size: 8, .value_kind: global_buffer, .address_space: global}
...
	.end_amdgpu_metadata
