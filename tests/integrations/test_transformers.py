"""Small models with random weights: `attn_implementation="autotune"` against `sdpa`, on the emulator."""

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")
transformers = pytest.importorskip(
    "transformers", reason="Transformers is not installed: `make test-torch` installs it"
)

from autotune.core.errors import UsageError  # noqa: E402
from autotune.integrations import torch_sdpa  # noqa: E402
from autotune.integrations.transformers_attention import attention_forward  # noqa: E402
from autotune.transformers import register  # noqa: E402

VOCABULARY, T = 50, 12


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.db"))
    register()
    torch.manual_seed(0)
    torch_sdpa._said.clear()
    yield
    torch._dynamo.reset()


def gpt2() -> Any:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 64, "n_positions": 32, "vocab_size": VOCABULARY}
    off = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **off))


def llama() -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=VOCABULARY, max_position_embeddings=32,
        )
    )  # fmt: skip


def bert() -> Any:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=VOCABULARY,
            max_position_embeddings=32, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
        )
    )  # fmt: skip


def whisper() -> Any:
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=VOCABULARY, num_mel_bins=8, max_source_positions=16,
            max_target_positions=32, dropout=0.0, attention_dropout=0.0, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
        )
    )  # fmt: skip


def tokens() -> dict[str, Any]:
    ids = torch.randint(3, VOCABULARY, (2, T))
    return {"input_ids": ids, "labels": ids}


def sounds() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 32), "labels": torch.randint(3, VOCABULARY, (2, T))}


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "gpt2": (gpt2, tokens), "llama": (llama, tokens), "bert": (bert, tokens), "whisper": (whisper, sounds),
}  # fmt: skip


def results(model: Any, implementation: str, batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    model.set_attn_implementation(implementation)
    model.zero_grad()
    said = model(**batch)
    said.loss.backward()
    return said.logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def same(one: Any, other: Any, bound: float = 2e-4) -> None:
    torch.testing.assert_close(one[0], other[0], atol=bound, rtol=0)
    assert one[1].keys() == other[1].keys()
    for name in one[1]:
        torch.testing.assert_close(one[1][name], other[1][name], atol=bound, rtol=0, msg=name)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ops whose kernels have run."""
    from autotune.integrations import torch_kernels

    ran = list[str]()
    run = torch_kernels._run

    def noted(op: str, *args: Any) -> None:
        ran.append(op)
        run(op, *args)

    monkeypatch.setattr(torch_kernels, "_run", noted)
    return ran


@pytest.mark.parametrize("name", [*MODELS])
def test_models(name: str, calls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    make, inputs = MODELS[name]
    model, batch = make(), inputs()
    expected = results(model, "sdpa", batch)
    assert calls == []
    same(results(model, "autotune", batch), expected)
    layers = 3 if name == "whisper" else 2  # an encoder's, a decoder's, and the one across
    assert sorted(calls) == ["backward"] * layers + ["forward"] * layers
    assert "PyTorch's attention is used" not in caplog.text


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_padding_is_honoured(name: str, side: str, caplog: pytest.LogCaptureFixture) -> None:
    make, inputs = MODELS[name]
    model, batch = make(), inputs()
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, slice(0, 4) if side == "left" else slice(T - 4, T)] = 0
    batch |= {"attention_mask": mask, "labels": batch["labels"].masked_fill(mask == 0, -100)}
    with caplog.at_level(logging.WARNING, "autotune.torch"):
        ours = results(model, "autotune", batch)
    same(ours, results(model, "sdpa", batch))
    without = results(model, "autotune", {**batch, "attention_mask": None})
    assert not torch.allclose(ours[0][0], without[0][0], atol=1e-3) or (side == "right" and name != "bert")
    assert len([r for r in caplog.records if "gives a mask" in r.getMessage()]) == 1


def test_generation_with_a_cache(calls: list[str]) -> None:
    model = llama().eval()
    prompt = tokens()["input_ids"]
    said = {}
    for implementation in ("sdpa", "autotune"):
        model.set_attn_implementation(implementation)
        said[implementation] = model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert torch.equal(said["sdpa"], said["autotune"])
    assert calls == ["forward"] * 10  # two layers: the prompt, then four tokens


def test_generation_with_a_cache_of_fixed_size() -> None:
    model = llama().eval()
    prompt = tokens()["input_ids"]
    said = {}
    for implementation in ("sdpa", "autotune"):
        model.set_attn_implementation(implementation)
        cache = transformers.StaticCache(config=model.config, max_cache_len=24)
        with torch.no_grad():
            said[implementation] = model(prompt, past_key_values=cache).logits
    torch.testing.assert_close(said["sdpa"], said["autotune"], atol=1e-4, rtol=0)


def test_compiled_without_graph_breaks() -> None:
    model, batch = llama(), tokens()
    expected = results(model, "sdpa", batch)[0]
    model.set_attn_implementation("autotune")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(input_ids=batch["input_ids"]).logits, expected, atol=2e-4, rtol=0)


def test_dropout_in_training_is_pytorchs(caplog: pytest.LogCaptureFixture) -> None:
    layer = SimpleNamespace(is_causal=True)
    q = torch.randn(1, 2, 8, 32)
    attention_forward(layer, q, q, q, None, dropout=0.5)
    assert "dropout_p=0.5" in caplog.text


@pytest.mark.parametrize("option", ["softcap", "s_aux", "sinks", "block_indices", "cache"])
def test_what_would_be_ignored_is_refused(option: str) -> None:
    q = torch.randn(1, 2, 8, 32)
    with pytest.raises(UsageError, match=rf'"autotune" does not compute .*\({option}\); use "eager"'):
        attention_forward(SimpleNamespace(), q, q, q, None, **{option: torch.ones(2)})
