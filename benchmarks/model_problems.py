"""Forty problems that models people run ask of attention, with the place where each model's dimensions are published.

Lengths are those of contexts, images and prompts as they come, so many are ragged. Where a model trains, forward and
backward are both here. Masks are causal or none: windows (Mistral), caps on scores (Gemma 2) and padding are left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import Literal

from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.ops.registry import get_op

Kind = Literal["decode", "training", "images", "cross", "prompt", "encoder"]


@dataclass(frozen=True)
class ModelProblem:
    """A problem, the model that asks it, and where its heads and head size are published.

    `note` says in what the problem is not quite the model's.
    """

    name: str
    kind: Kind
    problem: Problem
    source: str
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class _Model:
    name: str
    kind: Kind
    source: str
    fields: dict[str, Value]
    trains: bool = False


def _model(name: str, kind: Kind, source: str, *, trains: bool = False, **fields: Value) -> _Model:
    return _Model(name, kind, source, {"causal": kind in ("training", "prompt"), **fields}, trains)


_LLAMA3 = "Grattafiori et al., The Llama 3 herd of models (2024), table 3"
_SD15 = "runwayml/stable-diffusion-v1-5, unet/config.json"
_SDXL = "Podell et al., SDXL (2023); stabilityai/stable-diffusion-xl-base-1.0, unet/config.json"
_WHISPER = "Radford et al., Whisper (2022), table 1: large"
_QWEN25 = "Qwen/Qwen2.5-7B, config.json"

_MODELS = (
    # Decode: a step of generation against the keys so far.
    _model("Llama-3-8B, 16 sequences", "decode", _LLAMA3, B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=128, dtype="bf16"),
    _model("Llama-3-8B, one sequence", "decode", _LLAMA3, B=1, NH=32, NH_kv=8, T=1, T_kv=32768, HS=128, dtype="bf16"),
    _model("Llama-3-8B, 128 sequences", "decode", _LLAMA3, B=128, NH=32, NH_kv=8, T=1, T_kv=2048, HS=128, dtype="bf16"),
    _model(
        "Llama-2-7B, 16 sequences",
        "decode",
        "Touvron et al., Llama 2 (2023); meta-llama/Llama-2-7b, config.json",
        B=16,
        NH=32,
        T=1,
        T_kv=3001,
        HS=128,
        dtype="fp16",
    ),
    _model("Qwen2.5-7B, 8 sequences", "decode", _QWEN25, B=8, NH=28, NH_kv=4, T=1, T_kv=5003, HS=128, dtype="bf16"),
    _model(
        "Llama-3.2-1B, 16 sequences",
        "decode",
        "meta-llama/Llama-3.2-1B, config.json",
        B=16,
        NH=32,
        NH_kv=8,
        T=1,
        T_kv=32768,
        HS=64,
        dtype="bf16",
    ),
    _model(
        "Gemma-2B, 16 sequences",
        "decode",
        "Gemma team, Gemma (2024), table 1",
        B=16,
        NH=8,
        NH_kv=1,
        T=1,
        T_kv=4096,
        HS=256,
        dtype="bf16",
    ),
    _model("Whisper-large, cross, 5 beams", "decode", _WHISPER, B=5, NH=20, T=1, T_kv=1500, HS=64, dtype="fp16"),
    _model(
        "Llama-3-70B, 5 drafted tokens",
        "decode",
        _LLAMA3,
        B=4,
        NH=64,
        NH_kv=8,
        T=5,
        T_kv=8192,
        HS=128,
        dtype="bf16",
        causal=True,
    ),
    # Language models in training, causal.
    _model("Llama-3-8B", "training", _LLAMA3, trains=True, B=1, NH=32, NH_kv=8, T=8192, HS=128, dtype="bf16"),
    _model("Phi-2", "training", "microsoft/phi-2, config.json", trains=True, B=2, NH=32, T=2048, HS=80, dtype="fp16"),
    _model(
        "GPT-2 XL",
        "training",
        "Radford et al., GPT-2 (2019), table 2",
        trains=True,
        B=4,
        NH=25,
        T=1024,
        HS=64,
        dtype="fp16",
    ),
    _model(
        "DeepSeek-V3",
        "training",
        "DeepSeek-AI, DeepSeek-V3 (2024), section 4.2",
        trains=True,
        B=1,
        NH=128,
        T=4096,
        HS=192,
        HS_v=128,
        dtype="bf16",
    ),
    _model(
        "Gemma-2-9B",
        "training",
        "Gemma team, Gemma 2 (2024), table 1",
        trains=True,
        B=1,
        NH=16,
        NH_kv=8,
        T=4096,
        HS=256,
        dtype="bf16",
    ),
    _model(
        "GPT-NeoX-20B",
        "training",
        "Black et al., GPT-NeoX-20B (2022), section 2",
        trains=True,
        B=1,
        NH=64,
        T=2048,
        HS=96,
        dtype="fp16",
    ),
    # Images: self-attention of transformers and of diffusion models.
    _model(
        "SigLIP so400m/14, 384 pixels",
        "images",
        "google/siglip-so400m-patch14-384, config.json",
        trains=True,
        B=16,
        NH=16,
        T=729,
        HS=72,
        dtype="bf16",
    ),
    _model(
        "FLUX.1-dev, 1024 pixels",
        "images",
        "black-forest-labs/FLUX.1-dev, transformer/config.json",
        B=1,
        NH=24,
        T=4608,
        HS=128,
        dtype="bf16",
    ),
    _model("Stable Diffusion 1.5, 64 x 64", "images", _SD15, B=2, NH=8, T=4096, HS=40, dtype="fp16"),
    _model(
        "ViT-B/16",
        "images",
        "Dosovitskiy et al., ViT (2020), table 1",
        trains=True,
        B=64,
        NH=12,
        T=197,
        HS=64,
        dtype="bf16",
    ),
    _model("Stable Diffusion 1.5, 32 x 32", "images", _SD15, B=2, NH=8, T=1024, HS=80, dtype="fp16"),
    _model("SDXL, 64 x 64", "images", _SDXL, B=2, NH=10, T=4096, HS=64, dtype="fp16"),
    # Cross-attention: few keys for many queries, or many keys for a text.
    _model("SDXL, text", "cross", _SDXL, trains=True, B=2, NH=10, T=4096, T_kv=77, HS=64, dtype="fp16"),
    _model("Whisper-large, cross", "cross", _WHISPER, trains=True, B=4, NH=20, T=448, T_kv=1500, HS=64, dtype="fp16"),
    _model("Stable Diffusion 1.5, text", "cross", _SD15, B=2, NH=8, T=4096, T_kv=77, HS=40, dtype="fp16"),
    # Prompts of language models, ragged.
    _model(
        "Mistral-7B, prompt",
        "prompt",
        "Jiang et al., Mistral 7B (2023), table 1; its window left out",
        B=1,
        NH=32,
        NH_kv=8,
        T=3001,
        HS=128,
        dtype="bf16",
    ),
    _model("Qwen2.5-7B, prompt", "prompt", _QWEN25, B=1, NH=28, NH_kv=4, T=8009, HS=128, dtype="bf16"),
    _model(
        "Phi-3-mini, prompt",
        "prompt",
        "microsoft/Phi-3-mini-4k-instruct, config.json",
        B=1,
        NH=32,
        T=1777,
        HS=96,
        dtype="bf16",
    ),
    # Encoders.
    _model(
        "BERT-large",
        "encoder",
        "Devlin et al., BERT (2018), section 3",
        trains=True,
        B=24,
        NH=16,
        T=384,
        HS=64,
        dtype="fp16",
    ),
    _model("Whisper-large, audio", "encoder", _WHISPER, B=8, NH=20, T=1500, HS=64, dtype="fp16"),
)


@cache
def model_problems() -> tuple[ModelProblem, ...]:
    """All forty, in an order of which every beginning has all kinds: one of each kind in turn."""
    by_kind: dict[Kind, list[ModelProblem]] = {}
    for model in _MODELS:
        by_kind.setdefault(model.kind, []).extend(_problems(model))
    turns = zip_longest(*by_kind.values())
    return tuple(problem for turn in turns for problem in turn if problem is not None)


def shard(problems: Sequence[ModelProblem], index: int, count: int) -> list[ModelProblem]:
    """Part `index` of `count`: every `count`-th problem of each kind, so that the parts are alike.

    Raises:
        ValueError: there is no such part.
    """
    if not 0 <= index < count:
        raise ValueError(f"there is no shard {index}/{count}")
    seen: Counter[Kind] = Counter()
    part = []
    for problem in problems:
        if seen[problem.kind] % count == index:
            part.append(problem)
        seen[problem.kind] += 1
    return part


def _problems(model: _Model) -> Iterator[ModelProblem]:
    for op in ("backward", "forward") if model.trains else ("forward",):
        yield ModelProblem(f"{model.name}, {op}", model.kind, get_op(op).problem(**model.fields), model.source)
