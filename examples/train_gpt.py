"""Trains a small GPT with PyTorch's attention and with ours, on the same text in the same order.

    python examples/train_gpt.py                    # a GPT-2 of 12 layers, some hundred steps, on a GPU
    python examples/train_gpt.py --compile          # the same under torch.compile
    python examples/train_gpt.py --device cpu --layers 1 --width 64 --heads 2 --T 32 --batch 2 --steps 3

The text is the source of Python's standard library, byte by byte: every machine that can run this has it. What bf16
noise amounts to is told by two more runs of PyTorch's: with another of its own kernels, and the first once more,
whose speed tells how much a GPU's changes meanwhile. Writes `train_gpt.json` with every loss, and `train_gpt.png`
where matplotlib is installed.
"""

import argparse
import contextlib
import json
import math
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from autotune.torch import scaled_dot_product_attention

Attend = Callable[..., Any]
WARM_UP = 10  # steps that are not timed: kernels are built and loaded


class Block(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Attention, then a perceptron, each behind a normalisation."""

    def __init__(self, width: int, heads: int, attend: Attend) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.before_attention(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # views: nothing is copied
        x = x + self.out(self.attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A decoder over bytes."""

    def __init__(self, asked: argparse.Namespace, attend: Attend) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, asked.width), nn.Embedding(asked.T, asked.width)
        self.blocks = nn.Sequential(*(Block(asked.width, asked.heads, attend) for _ in range(asked.layers)))
        self.norm, self.head = nn.LayerNorm(asked.width), nn.Linear(asked.width, 256, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * asked.layers) if deep else 1))

    def forward(self, text: Any) -> Any:
        x = self.tokens(text) + self.places.weight[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def library_text(limit: int = 8 << 20) -> Any:
    """Bytes of the standard library's modules, in the order of their names."""
    files, text = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")), bytearray()
    for file in files:
        text += file.read_bytes()
    return torch.frombuffer(text[:limit], dtype=torch.uint8).long()


def batches(text: Any, asked: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    """The same windows for every run, cut out of the text on the device: a copy from the host would wait for it."""
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(len(text) - asked.T - 1, (asked.steps, asked.batch, 1), generator=generator)
    within = torch.arange(asked.T + 1, device=asked.device)
    for of_step in starts.to(asked.device):
        window = text[of_step + within]
        yield window[:, :-1], window[:, 1:]


def train(attend: Attend, text: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Losses of every step, and tokens a second of those after the warm-up."""
    torch.manual_seed(0)
    model: Any = Gpt(asked, attend).to(asked.device)
    step_model = torch.compile(model, fullgraph=True) if asked.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    warm = max(1, asked.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm))
    losses, start = [], time.perf_counter()
    timed_from = min(WARM_UP, asked.steps - 1)
    for number, (inputs, targets) in enumerate(batches(text, asked)):
        if number == timed_from:
            synchronize(asked.device)
            start = time.perf_counter()
        with torch.autocast(asked.device, torch.bfloat16, enabled=asked.bf16):
            logits = step_model(inputs)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    synchronize(asked.device)
    seconds = time.perf_counter() - start
    rate = (asked.steps - timed_from) * asked.batch * asked.T / seconds
    return {"losses": [float(loss) for loss in losses], "tokens_per_s": rate}


def synchronize(device: str) -> None:
    """Wait for the GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def another_kernel(*args: Any, **options: Any) -> Any:
    """PyTorch's attention by a kernel that it would not choose itself."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return functional.scaled_dot_product_attention(*args, **options)


def smooth(losses: list[float], window: int = 20) -> list[float]:
    """Means over the last steps."""
    return [sum(losses[max(0, i - window + 1) : i + 1]) / min(window, i + 1) for i in range(len(losses))]


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference of two smoothed curves."""
    pairs = zip(smooth(one["losses"]), smooth(other["losses"]), strict=True)
    return max(abs(a - b) for a, b in pairs)


def draw(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Loss over steps."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for (name, run), style in zip(runs.items(), ("-", "--", ":", "-."), strict=True):
        axes.plot(smooth(run["losses"]), style, label=f"{name}: {run['tokens_per_s']:,.0f} tokens/s")
    axes.set(xlabel="step", ylabel="loss, mean of 20 steps (nats a byte)")
    axes.legend()
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Train four times, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    for name, default in {"steps": 400, "layers": 12, "width": 768, "heads": 12, "T": 1024, "batch": 16}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", action="store_true", help="under torch.compile(fullgraph=True)")
    parser.add_argument("--fp32", dest="bf16", action="store_false", help="without autocast to bf16")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for train_gpt.json and train_gpt.png")
    asked = parser.parse_args(arguments)
    text = library_text().to(asked.device)
    runs = {}
    attends = {
        "PyTorch": functional.scaled_dot_product_attention,
        "autotune": scaled_dot_product_attention,
        "PyTorch, another kernel": another_kernel,
        "PyTorch, again": functional.scaled_dot_product_attention,
    }
    for name, attend in attends.items():
        runs[name] = train(attend, text, asked)
        print(f"{name}: loss {runs[name]['losses'][-1]:.4f}, {runs[name]['tokens_per_s']:,.0f} tokens/s", flush=True)
        if asked.compile:
            torch._dynamo.reset()
    ours, other, again = (apart(runs["PyTorch"], runs[name]) for name in attends if name != "PyTorch")
    print(
        f"largest difference from PyTorch's smoothed losses: autotune {ours:.4f}, PyTorch with another kernel "
        f"{other:.4f}, PyTorch again {again:.4f}"
    )
    said = {key: value for key, value in vars(asked).items() if key != "out"}
    (asked.out / "train_gpt.json").write_text(json.dumps({"asked": said, "runs": runs}), encoding="utf-8")
    with contextlib.suppress(ImportError):
        draw(runs, asked.out / "train_gpt.png")
    return runs


if __name__ == "__main__":
    main()
