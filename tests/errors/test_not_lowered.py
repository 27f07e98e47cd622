"""What the evaluator runs and the compiler does not yet is refused by name at the user's line, on every target."""

from __future__ import annotations

import pytest
from wavedsl.ir.errors import CompileError

import wavedsl as wd

M, N = wd.symbols("M N")
USES = {
    "device_print": lambda x, b: wd.device_print(x),
    "device_assert": lambda x, b: wd.device_assert(x >= 0.0, "negative"),
}


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize("op", USES)
def test_refused_by_name(op: str, target: str):
    use = USES[op]

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)], subs={M: 16, N: 64})
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        use(wd.read(a), b)

    with pytest.raises(CompileError) as caught:
        kernel.compile(target=target)
    text = str(caught.value)
    assert f"{op} is not lowered to instructions yet" in text
    assert __file__ in text and "^" in text and "kernel.evaluate" in text
