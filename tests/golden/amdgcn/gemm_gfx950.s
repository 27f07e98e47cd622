	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.amdhsa_code_object_version 5
	.text
	.globl gemm
	.p2align 8
	.type gemm,@function
	.file 1 "." "gemm.py"
gemm:
	s_load_dwordx2          s[4:5], s[0:1], 0x0
	s_load_dwordx2          s[8:9], s[0:1], 0x8
	s_load_dwordx2          s[12:13], s[0:1], 0x10
	.loc 1 12 5
	s_mov_b32               s6, 0x20000                     ; gemm.py:12
	s_mov_b32               s7, 0x27000
	s_waitcnt               lgkmcnt(0)
	s_mov_b32               s16, s4
	s_mov_b32               s17, s5
	s_mov_b32               s19, s7
	s_mov_b64               s[10:11], s[6:7]
	s_mov_b32               s20, s8
	s_mov_b32               s21, s9
	s_mov_b32               s23, s11
	s_mov_b32               s14, 0x40000
	s_mov_b32               s15, 0x27000
	v_and_b32_e32           v8, 63, v0
	v_readfirstlane_b32     s0, v0
	s_lshl_b32              s1, s2, 6
	s_lshl_b32              s24, s3, 6
	v_lshrrev_b32_e32       v1, 2, v0
	v_and_b32_e32           v2, 3, v0
	v_bfe_u32               v3, v0, 3, 2
	v_xor_b32_e32           v3, v2, v3
	v_lshlrev_b32_e32       v3, 4, v3
	v_lshl_add_u32          v32, v1, 6, v3
	v_and_b32_e32           v33, 15, v0
	v_lshrrev_b32_e32       v34, 4, v8
	s_bfe_u32               s18, s0, 0x10006
	s_lshr_b32              s0, s0, 7
	s_lshl_b32              s2, s2, 15
	v_lshlrev_b32_e32       v0, 9, v1
	v_lshl_add_u32          v35, v2, 4, v0
	buffer_load_dwordx4     v[0:3], v35, s[4:7], s2 offen
	s_lshl_b32              s3, s3, 15
	buffer_load_dwordx4     v[4:7], v35, s[8:11], s3 offen
	s_lshl_b32              s4, s18, 5
	v_add_u32_e32           v9, s4, v33
	v_lshrrev_b32_e32       v8, 5, v8
	v_bfe_u32               v10, v9, 1, 2
	v_xor_b32_e32           v11, v8, v10
	v_lshlrev_b32_e32       v9, 6, v9
	v_and_b32_e32           v12, 1, v34
	v_lshlrev_b32_e32       v12, 3, v12
	v_lshl_add_u32          v11, v11, 4, v9
	v_add_u32_e32           v36, v12, v11
	s_lshl_b32              s0, s0, 5
	v_add_u32_e32           v11, s0, v33
	v_bfe_u32               v13, v11, 1, 2
	v_xor_b32_e32           v14, v8, v13
	v_lshlrev_b32_e32       v11, 6, v11
	v_lshl_add_u32          v14, v14, 4, v11
	v_add_u32_e32           v37, v12, v14
	v_add_u32_e32           v38, 0x400, v37
	v_add_u32_e32           v8, 2, v8
	v_xor_b32_e32           v10, v10, v8
	v_lshl_add_u32          v9, v10, 4, v9
	v_add_u32_e32           v39, v12, v9
	v_xor_b32_e32           v8, v13, v8
	v_lshl_add_u32          v8, v8, 4, v11
	v_add_u32_e32           v40, v12, v8
	v_add_u32_e32           v41, 0x400, v40
	v_mov_b64_e32           v[8:9], 0
	v_mov_b64_e32           v[10:11], 0
	v_mov_b64_e32           v[12:13], 0
	v_mov_b64_e32           v[14:15], 0
	v_mov_b64_e32           v[16:17], 0
	v_mov_b64_e32           v[18:19], 0
	v_mov_b64_e32           v[20:21], 0
	v_mov_b64_e32           v[22:23], 0
	s_mov_b32               s5, 0
.Lgemm_k1:                                               ; loop over k
	s_waitcnt               vmcnt(1)
	ds_write_b128           v32, v[0:3]
	s_waitcnt               vmcnt(0)
	ds_write_b128           v32, v[4:7] offset:4096
	s_waitcnt               lgkmcnt(0)
	s_barrier
	s_lshl_b32              s6, s5, 1
	s_add_u32               s7, s2, s6
	s_cmp_lt_i32            s5, 0xe0
	s_cselect_b32           s18, 0x20000, 0
	s_mov_b32               s22, s18
	v_add_u32_e32           v4, s7, v35
	buffer_load_dwordx4     v[0:3], v4, s[16:19], 0 offen offset:64
	s_add_u32               s6, s3, s6
	v_add_u32_e32           v24, s6, v35
	buffer_load_dwordx4     v[4:7], v24, s[20:23], 0 offen offset:64
	ds_read2_b64            v[24:27], v36 offset1:128
	ds_read_b64             v[28:29], v37 offset:4096
	ds_read_b64             v[30:31], v38 offset:4096
	s_waitcnt               lgkmcnt(0)
	v_mfma_f32_16x16x16_f16 v[8:11], v[24:25], v[28:29], v[8:11]
	v_mfma_f32_16x16x16_f16 v[12:15], v[24:25], v[30:31], v[12:15]
	v_mfma_f32_16x16x16_f16 v[16:19], v[26:27], v[28:29], v[16:19]
	v_mfma_f32_16x16x16_f16 v[20:23], v[26:27], v[30:31], v[20:23]
	ds_read2_b64            v[24:27], v39 offset1:128
	ds_read_b64             v[28:29], v40 offset:4096
	ds_read_b64             v[30:31], v41 offset:4096
	s_waitcnt               lgkmcnt(0)
	v_mfma_f32_16x16x16_f16 v[8:11], v[24:25], v[28:29], v[8:11]
	v_mfma_f32_16x16x16_f16 v[12:15], v[24:25], v[30:31], v[12:15]
	v_mfma_f32_16x16x16_f16 v[16:19], v[26:27], v[28:29], v[16:19]
	v_mfma_f32_16x16x16_f16 v[20:23], v[26:27], v[30:31], v[20:23]
	s_barrier
	s_add_u32               s5, s5, 32
	s_cmp_lt_i32            s5, 0x100
	s_cbranch_scc1          .Lgemm_k1
	s_add_u32               s1, s1, s4
	s_waitcnt               vmcnt(1)
	v_lshl_add_u32          v0, v34, 2, s1
	s_add_u32               s0, s24, s0
	v_add_lshl_u32          v1, v33, s0, 2
	v_lshl_add_u32          v0, v0, 10, v1
	buffer_store_dword      v8, v0, s[12:15], 0 offen
	buffer_store_dword      v9, v0, s[12:15], 0 offen offset:1024
	buffer_store_dword      v10, v0, s[12:15], 0 offen offset:2048
	buffer_store_dword      v11, v0, s[12:15], 0 offen offset:3072
	buffer_store_dword      v12, v0, s[12:15], 0 offen offset:64
	buffer_store_dword      v13, v0, s[12:15], 0 offen offset:1088
	buffer_store_dword      v14, v0, s[12:15], 0 offen offset:2112
	buffer_store_dword      v15, v0, s[12:15], 0 offen offset:3136
	v_add_u32_e32           v0, 0x4000, v0
	buffer_store_dword      v16, v0, s[12:15], 0 offen
	buffer_store_dword      v17, v0, s[12:15], 0 offen offset:1024
	buffer_store_dword      v18, v0, s[12:15], 0 offen offset:2048
	buffer_store_dword      v19, v0, s[12:15], 0 offen offset:3072
	buffer_store_dword      v20, v0, s[12:15], 0 offen offset:64
	buffer_store_dword      v21, v0, s[12:15], 0 offen offset:1088
	buffer_store_dword      v22, v0, s[12:15], 0 offen offset:2112
	buffer_store_dword      v23, v0, s[12:15], 0 offen offset:3136
	s_endpgm
.Lgemm_end:
	.size gemm, .Lgemm_end-gemm
	.p2alignl 6, 3212836864
	.fill 256, 4, 3212836864
	.section .rodata
	.p2align 6
	.amdhsa_kernel gemm
		.amdhsa_group_segment_fixed_size 8192
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 24
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_count 2
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 1
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 42
		.amdhsa_next_free_sgpr 25
		.amdhsa_accum_offset 44
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
	.end_amdhsa_kernel
	.text
	.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.kernels:
  - .name: gemm
    .symbol: gemm.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 8192
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 25
    .vgpr_count: 42
    .agpr_count: 0
    .max_flat_workgroup_size: 256
    .args:
      - {.name: a, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: b, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: c, .offset: 16, .size: 8, .value_kind: global_buffer, .address_space: global}
...
	.end_amdgpu_metadata
