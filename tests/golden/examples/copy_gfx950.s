	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.amdhsa_code_object_version 5
	.text
	.globl copy
	.p2align 8
	.type copy,@function
	.file 1 "examples" "copy.py"
copy:
	s_load_dwordx2          s[4:5], s[0:1], 0x0
	s_load_dwordx2          s[8:9], s[0:1], 0x8
	.loc 1 28 18
	v_lshlrev_b32_e32       v2, 3, v0                       ; copy.py:28  wd.write(wd.read(a), b)
	s_mov_b32               s6, 0x200
	s_mov_b32               s7, 0x27000
	s_waitcnt               lgkmcnt(0)
	buffer_load_dwordx2     v[0:1], v2, s[4:7], 0 offen
	.loc 1 28 9
	s_mov_b64               s[10:11], s[6:7]
	s_waitcnt               vmcnt(0)
	buffer_store_dwordx2    v[0:1], v2, s[8:11], 0 offen
	s_endpgm
.Lcopy_end:
	.size copy, .Lcopy_end-copy
	.p2alignl 6, 3212836864
	.fill 256, 4, 3212836864
	.section .rodata
	.p2align 6
	.amdhsa_kernel copy
		.amdhsa_group_segment_fixed_size 0
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 16
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_count 2
		.amdhsa_system_sgpr_workgroup_id_x 0
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 3
		.amdhsa_next_free_sgpr 12
		.amdhsa_accum_offset 4
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
  - .name: copy
    .symbol: copy.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 12
    .vgpr_count: 3
    .agpr_count: 0
    .max_flat_workgroup_size: 64
    .args:
      - {.name: a, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: b, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
...
	.end_amdgpu_metadata
