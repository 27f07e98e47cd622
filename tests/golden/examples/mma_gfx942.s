	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
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
	.loc 1 57 27
	v_cmp_lt_i32_e64        vcc, v0, 32                     ; gemm.py:57  return wd.mma(wd.read(a), wd.read(b), acc)
	v_lshlrev_b32_e32       v1, 4, v0
	s_mov_b32               s6, 0x200
	s_mov_b32               s7, 0x27000
	v_cndmask_b32_e32       v1, -0.5, v1, vcc
	s_waitcnt               lgkmcnt(0)
	buffer_load_dwordx4     v[2:5], v1, s[4:7], 0 offen
	.loc 1 57 39
	s_mov_b64               s[10:11], s[6:7]
	buffer_load_dwordx4     v[6:9], v1, s[8:11], 0 offen
	.loc 1 57 27
	v_and_b32_e32           v1, 24, v0
	v_and_b32_e32           v10, 31, v0
	v_lshlrev_b32_e32       v10, 4, v10
	v_xor_b32_e32           v1, v1, v10
	s_and_saveexec_b64      s[0:1], vcc
	s_waitcnt               vmcnt(0)
	ds_write_b64            v1, v[2:3]
	s_mov_b64               exec, -1
	v_xor_b32_e32           v2, 8, v1
	s_and_saveexec_b64      s[0:1], vcc
	ds_write_b64            v2, v[4:5]
	.loc 1 57 39
	ds_write_b64            v1, v[6:7] offset:512
	ds_write_b64            v2, v[8:9] offset:512
	s_mov_b64               exec, -1
	.loc 1 57 27
	v_lshlrev_b32_e32       v1, 1, v0
	v_lshrrev_b32_e32       v2, 1, v0
	v_xor_b32_e32           v1, v1, v2
	v_and_b32_e32           v1, 24, v1
	v_and_b32_e32           v10, 15, v0
	v_lshl_add_u32          v1, v10, 5, v1
	ds_read2_b64            v[2:5], v1 offset1:64
	.loc 1 57 20
	s_waitcnt               lgkmcnt(0)
	v_mfma_f32_16x16x16_f16 v[6:9], v[4:5], v[2:3], 0
	.loc 1 59 9
	v_mad_u32_u24           v0, v10, 63, v0                 ; gemm.py:59  wd.write(loop, c)
	s_mov_b32               s14, 0x400
	s_mov_b32               s15, 0x27000
	s_nop                   3
	buffer_store_dwordx4    v[6:9], v0, s[12:15], 0 offen
	s_endpgm
.Lgemm_end:
	.size gemm, .Lgemm_end-gemm
	.p2alignl 6, 3212836864
	.fill 256, 4, 3212836864
	.section .rodata
	.p2align 6
	.amdhsa_kernel gemm
		.amdhsa_group_segment_fixed_size 1024
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 24
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_count 2
		.amdhsa_system_sgpr_workgroup_id_x 0
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 11
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 12
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
	.end_amdhsa_kernel
	.text
	.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx942
amdhsa.kernels:
  - .name: gemm
    .symbol: gemm.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 1024
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 11
    .agpr_count: 0
    .max_flat_workgroup_size: 64
    .args:
      - {.name: a, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: b, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: c, .offset: 16, .size: 8, .value_kind: global_buffer, .address_space: global}
...
	.end_amdgpu_metadata
