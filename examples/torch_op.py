"""A kernel as an operator of torch: registered, with gradients, under `torch.compile`.

    pip install torch
    python examples/torch_op.py --m 100 --n 300                 on a GPU if there is one, else on the emulator

RMS norm of rows, y = x · r · g with r = 1 / sqrt(mean(x²) + eps), and its gradients. The operator is opaque to
`torch.compile`: it sees the shapes of its results (`register_fake`) and what to run backward (`register_autograd`).
Launches go to torch's current stream; a call that has been made before may be captured in a CUDA graph.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import argparse

try:
    import torch
    from torch import library
except ImportError:
    sys.exit("examples/torch_op.py needs torch: pip install torch")

import wavedsl as wd

M, N = wd.symbols("M N")
EPS = 1e-6


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)], dynamic=[M])
def forward(
    x: wd.Memory[M, N, wd.f32], g: wd.Memory[N, wd.f32], y: wd.Memory[M, N, wd.f32], r: wd.Memory[M, wd.f32]
):  # fmt: skip
    value = wd.read(x)
    scale = wd.rsqrt(wd.sum(value * value, dim=N) / N + EPS)
    wd.write(scale, r)
    wd.write(value * scale * wd.read(g), y)


@wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)], dynamic=[M])
def to_x(
    x: wd.Memory[M, N, wd.f32], g: wd.Memory[N, wd.f32], r: wd.Memory[M, wd.f32], dy: wd.Memory[M, N, wd.f32],
    dx: wd.Memory[M, N, wd.f32],
):  # fmt: skip
    scale = wd.read(r)
    normal = wd.read(x) * scale
    slope = wd.read(dy) * wd.read(g)
    wd.write((slope - normal * (wd.sum(slope * normal, dim=N) / N)) * scale, dx)


@wd.wave([wd.WorkgroupConstraint(N, 64, 0), wd.TilingConstraint(M, 32)], dynamic=[M])
def to_g(
    x: wd.Memory[M, N, wd.f32], r: wd.Memory[M, wd.f32], dy: wd.Memory[M, N, wd.f32], dg: wd.Memory[N, wd.f32]
):  # fmt: skip
    @wd.iterate(M, init_args=[wd.Register[N, wd.f32](0.0)])
    def rows(total):
        return total + wd.sum(wd.read(dy) * wd.read(x) * wd.read(r), dim=M)

    wd.write(rows, dg)


# -------------------------------------------------------------------------------------------------------- the operator


@library.custom_op("wavedsl_examples::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """y and r of rows x [M, N] and gains g [N], all f32."""
    y, r = torch.empty_like(x), x.new_empty(x.shape[0])
    forward(x.detach(), g.detach(), y, r)
    return y, r


@rms_norm.register_fake
def _(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[0])


@library.custom_op("wavedsl_examples::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    x: torch.Tensor, g: torch.Tensor, r: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x and g."""
    x, g, dy = x.detach(), g.detach(), dy.detach().contiguous()
    dx, dg = torch.empty_like(x), torch.empty_like(g)
    to_x(x, g, r, dy, dx)
    to_g(x, r, dy, dg)
    return dx, dg


@rms_norm_backward.register_fake
def _(x: torch.Tensor, g: torch.Tensor, r: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(g)


def save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])


def backward(ctx, dy, _):
    x, g, r = ctx.saved_tensors
    return rms_norm_backward(x, g, r, dy)


rms_norm.register_autograd(backward, setup_context=save)


# ----------------------------------------------------------------------------------------------------------- the check


def reference(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * g


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=int, default=20)
    parser.add_argument("--n", type=int, default=96)
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x, dy = (torch.randn(given.m, given.n, device=device) for _ in range(2))
    g = torch.randn(given.n, device=device)

    def gradients(function, dtype=torch.float32):
        inputs = [t.to(dtype).requires_grad_() for t in (x, g)]
        y = function(*inputs)
        return [t.double() for t in (y, *torch.autograd.grad(y, inputs, dy.to(dtype)))]

    compiled = torch.compile(lambda x, g: rms_norm(2 * x, g)[0] + 1, backend="aot_eager", fullgraph=True)
    cases = {
        "eager": (lambda x, g: rms_norm(x, g)[0], reference),
        "compiled": (compiled, lambda x, g: reference(2 * x, g) + 1),
    }
    good = True
    for name, (ours, theirs) in cases.items():
        for what, got, want in zip(("y", "dx", "dg"), gradients(ours), gradients(theirs, torch.float64), strict=True):
            error, allowed = (got - want).abs().max().item(), 2e-5 * want.abs().max().item()
            print(f"{name} {what}: largest error against torch in f64 {error:.3g}, allowed {allowed:.3g}")
            good &= error <= allowed
    library.opcheck(rms_norm, (x.requires_grad_(), g.requires_grad_()))
    print("opcheck: fine")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
