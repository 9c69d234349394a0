"""What is read out of a checkpoint's directory, and one clear line for each thing that is wrong with it."""

from __future__ import annotations

import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from family_oracles import write_family  # noqa: E402
from qwen3_oracle import END, MASK  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from redline_engine.config import ModelSpec  # noqa: E402
from redline_engine.models.checkpoint import CheckpointError, describe, load  # noqa: E402

OTHER_MODEL = "weights and config.json are not of one model; download both anew, or correct config.json"
STATE_BLOCK = "state block_size under source: {engine: ...} of the grid file (engine inspect: --knob block_size=N)"
STATE_MASK = "state mask_id under source: {engine: ...} of the grid file (engine inspect: --mask-id N)"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    made = {}
    for name in ("sdar", "sdar_moe", "llada2"):
        made[name] = tmp_path_factory.mktemp(name)
        write_family(name, made[name])
    return made


@pytest.fixture(params=["sdar", "sdar_moe", "llada2"])
def family(request):
    return request.param


@pytest.fixture
def directory(originals, family, tmp_path):
    """A copy that may be spoilt, under a name that says nothing."""
    return shutil.copytree(originals[family], tmp_path / "model")


def faults_of(directory, read=load, **spec):
    spec = {"device": "cpu", "block_size": 4, "mask_id": MASK, **spec}
    with pytest.raises(CheckpointError) as error:
        read(ModelSpec(str(directory), **spec))
    return str(error.value).splitlines()


def edit(path: Path, **changes):
    """Change keys of a JSON file; None removes one."""
    values = json.loads(path.read_text()) if path.exists() else {}
    values = {key: value for key, value in (values | changes).items() if value is not None}
    path.write_text(json.dumps(values))


def change_tensors(directory, change):
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, directory / "model.safetensors")


def shard(directory):
    """Split the weights into two files with an index."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    half = len(tensors) // 2
    parts = dict(zip(SHARDS, (dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:])), strict=True))
    for file, part in parts.items():
        save_file(part, directory / file)
    index = {"weight_map": {key: file for file, part in parts.items() for key in part}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def write_tokenizer(directory, added, base=110):
    """A tokenizer of `base` words and some special tokens, name to id."""
    words = {f"w{number}": number for number in range(base)}
    tokens = [{"content": name, "id": number, "special": True} for name, number in added.items()]
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": tokens}))


# -- Weights --------------------------------------------------------------------------------------------------------


def test_a_missing_tensor_one_too_many_and_one_of_another_shape_are_named(directory):
    def spoil(tensors):
        tensors["model.layers.0.input_layernorm.bias"] = tensors.pop("model.layers.0.input_layernorm.weight")
        tensors["lm_head.weight"] = tensors["lm_head.weight"][:-1]

    change_tensors(directory, spoil)
    assert faults_of(directory) == [
        f"{directory}: no tensor model.layers.0.input_layernorm.weight",
        f"{directory}: tensor lm_head.weight is [119, 48], by config.json it is [120, 48]",
        f"{directory}: unknown tensor model.layers.0.input_layernorm.bias",
        f"{directory}: {OTHER_MODEL}",
    ]


def test_many_faults_of_a_kind_are_counted(directory):
    change_tensors(directory, lambda tensors: [tensors.pop(key) for key in list(tensors)[2:]])
    faults = faults_of(directory)
    assert len(faults) == 10
    assert faults[-2].endswith("more like these")
    assert faults[-1] == f"{directory}: {OTHER_MODEL}"


@pytest.mark.parametrize("family", ["sdar_moe", "llada2"])
def test_one_expert_that_is_missing_is_named(directory):
    change_tensors(directory, lambda tensors: tensors.pop("model.layers.2.mlp.experts.5.up_proj.weight"))
    fault = f"{directory}: no tensor model.layers.2.mlp.experts.5.up_proj.weight"
    assert faults_of(directory) == [fault, f"{directory}: {OTHER_MODEL}"]


@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16])
def test_a_tied_head_may_be_kept_but_not_be_another_one(directory, type_):
    """Newer versions of transformers would not tie two that differ, older ones would."""
    embedding = next(key for key in load_file(directory / "model.safetensors") if "embed" in key)
    edit(directory / "config.json", tie_word_embeddings=True)
    change_tensors(directory, lambda tensors: tensors.update({"lm_head.weight": tensors[embedding].to(type_).clone()}))
    if type_ == torch.float32:
        load(ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK))
    load(ModelSpec(str(directory), "bfloat16", "cpu", block_size=4, mask_id=MASK))

    def move(tensors):
        tensors["lm_head.weight"] = tensors["lm_head.weight"].clone()
        tensors["lm_head.weight"][-1, -1] += 1

    change_tensors(directory, move)
    (fault,) = faults_of(directory)
    where = f"{directory / 'model.safetensors'}: tensor lm_head.weight"
    assert fault.startswith(f"{where} differs from the embedding that it is tied to; set tie_word_embeddings to false")
    change_tensors(directory, lambda tensors: tensors.update({"lm_head.weight": torch.ones(2, 3)}))
    (fault,) = faults_of(directory)
    assert fault.startswith(f"{where} is [2, 3], the embedding that it is tied to [120, 48]; set tie_word_embeddings")
    change_tensors(directory, lambda tensors: tensors.pop("lm_head.weight"))
    load(ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK))
    edit(directory / "config.json", tie_word_embeddings=False)
    (fault,) = faults_of(directory)
    assert fault.startswith(f"{directory}: no tensor lm_head.weight; set tie_word_embeddings to true in config.json if")


@pytest.mark.parametrize("family", ["sdar"])
def test_shards_that_are_absent_or_not_what_the_index_says_are_named(directory):
    shard(directory)
    load(ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK))
    index = directory / "model.safetensors.index.json"
    kept = index.read_text()
    edit(index, weight_map=json.loads(kept)["weight_map"] | {"model.norm.weight": "gone.safetensors"})
    assert faults_of(directory) == [f"{index}: shard gone.safetensors is not there; download it"]
    edit(index, weight_map=json.loads(kept)["weight_map"] | {"extra": SHARDS[0]})
    assert faults_of(directory) == [f"{index}: says extra is in {SHARDS[0]}, where it is not"]
    edit(index, weight_map=json.loads(kept)["weight_map"] | {"extra": "../outside.safetensors"})
    assert faults_of(directory) == [f"{index}: names '../outside.safetensors', which is not a file beside it"]
    edit(index, weight_map=[1])
    assert faults_of(directory) == [f"{index}: has no weight_map from tensors to files"]
    index.write_text(kept)
    doubled = load_file(directory / SHARDS[0]) | {"model.norm.weight": torch.ones(48)}
    save_file(doubled, directory / SHARDS[0])
    if "model.norm.weight" not in json.loads(kept)["weight_map"] or len(faults_of(directory)) != 1:
        pytest.fail("one tensor in two shards is one fault")
    index.unlink()
    (fault,) = faults_of(directory)
    assert fault.startswith(f"{directory}: holds {SHARDS[0]} but neither model.safetensors nor")
    shutil.copy(directory / SHARDS[0], directory / "model.safetensors")
    index.write_text(kept)
    assert "holds both" in faults_of(directory)[0]


@pytest.mark.parametrize("family", ["sdar"])
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "chat_template.jinja"]
)
def test_a_link_to_a_file_that_is_not_there_is_named(directory, name):
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to("../blobs/0123")
    (fault,) = faults_of(directory)
    assert fault == f"{directory / name}: links to ../blobs/0123, which is not there; download it again"


@pytest.mark.parametrize("family", ["sdar"])
def test_a_shard_or_an_index_that_links_to_nothing_is_named(directory):
    shard(directory)
    (directory / SHARDS[1]).unlink()
    (directory / SHARDS[1]).symlink_to("../blobs/0123")
    index = directory / "model.safetensors.index.json"
    fault = "links to ../blobs/0123, which is not there; download it again"
    assert faults_of(directory) == [f"{index}: shard {SHARDS[1]} {fault}"]
    index.unlink()
    index.symlink_to("../blobs/0123")
    assert faults_of(directory) == [f"{index}: {fault}"]


@pytest.mark.parametrize("family", ["sdar"])
def test_a_directory_without_a_configuration_is_told_which_one_may_be_meant(directory, tmp_path):
    cache = tmp_path / "models--JetLM--SDAR-8B-Chat-b16"
    (cache / "snapshots").mkdir(parents=True)
    (fault,) = faults_of(cache)
    start = f"{cache / 'config.json'}: cannot be read (no such file); "
    assert fault == f"{start}this is a folder of the download cache; give the one in it that is called snapshots/<hash>"
    moved = directory.rename(cache / "snapshots" / "0123abc")
    assert faults_of(cache) == [f"{start}there is one in {moved}; give that directory"]
    assert f"there is one in {moved}; give that directory" in faults_of(cache / "snapshots")[0]
    (moved / "config.json").unlink()
    assert faults_of(moved)[0].endswith("give the directory that the download made, or download this file too")


@pytest.mark.parametrize("family", ["sdar"])
def test_older_tokenizer_files_are_told_how_to_be_converted(directory):
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert "mask token unknown: there is no tokenizer.json; download it into this directory; or state mask_id" in fault
    for name in ("vocab.json", "merges.txt", "added_tokens.json"):
        (directory / name).write_text("{}")
    (fault,) = faults_of(directory, describe, mask_id=None)
    steps = f"AutoTokenizer.from_pretrained('{directory}').save_pretrained('{directory}')"
    assert "make it from vocab.json, merges.txt, added_tokens.json: python -c " in fault
    assert f'"from transformers import AutoTokenizer; {steps}"; or {STATE_MASK}' in fault


@pytest.mark.parametrize("family", ["sdar"])
def test_pickles_are_never_opened(directory, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    (fault,) = faults_of(directory)
    assert "holds pickled weights (pytorch_model.bin), which could run code when read" in fault
    assert not (tmp_path / "exploded").exists()
    (directory / "pytorch_model.bin").unlink()
    assert "holds no weights" in faults_of(directory)[0]


@pytest.mark.parametrize("family", ["llada2"])
def test_code_beside_the_weights_is_never_run(directory, tmp_path):
    (directory / "modeling_llada2_moe.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    load(ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("family", ["sdar"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer, not the weights"),
        (b"", "is not a whole safetensors file"),
        (b"\xff" * 64, "is not a whole safetensors file"),
        (None, "is not a whole safetensors file"),
    ],
)
def test_a_file_that_holds_no_tensors_is_refused(directory, content, problem):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5] if content is None else content)
    (fault,) = faults_of(directory)
    assert fault.startswith(f"{path}: {problem}")


@pytest.mark.parametrize("weights", [None, "int8"])
@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_not_finite_is_refused_with_its_file_and_tensor(directory, bad, type_, weights):
    def spoil(tensors):
        tensors.update({key: tensor.to(type_) for key, tensor in tensors.items()})
        tensors[spoilt].flatten()[-1] = bad

    spoilt = sorted(load_file(directory / "model.safetensors"))[-2]
    change_tensors(directory, spoil)
    shard(directory)
    (fault,) = faults_of(directory, weights=weights)
    (file,) = [each for each in SHARDS if spoilt in load_file(directory / each)]
    assert fault.startswith(f"{directory / file}: tensor {spoilt} holds NaN or infinite weights; download the file")
    describe(ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK))  # which reads no weight


@pytest.mark.parametrize("family", ["sdar"])
def test_large_weights_are_loaded_where_their_type_holds_them(directory):
    """A sum of these overflows; each of them does not, until it is rounded to a shorter type."""

    def enlarge(tensors):
        tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], torch.finfo(torch.float32).max)

    change_tensors(directory, enlarge)
    load(ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK))
    (fault,) = faults_of(directory, dtype="bfloat16")
    assert "tensor model.norm.weight holds numbers that bfloat16 cannot hold; choose another dtype" in fault


@pytest.mark.parametrize("family", ["sdar"])
def test_quantised_tensors_are_refused(directory):
    def spoil(tensors):
        tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.float8_e4m3fn)

    change_tensors(directory, spoil)
    (fault,) = faults_of(directory)
    assert "tensor lm_head.weight has type F8_E4M3; read are F64, F32, F16, BF16" in fault
    edit(directory / "config.json", quantization_config={"quant_method": "fp8"})
    assert "quantization_config" in faults_of(directory, describe)[0]


# -- config.json ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_act": "gelu"}, 'hidden_act "gelu"; only "silu" is implemented'),
        ({"attention_bias": True}, "attention_bias true; only false is implemented"),
        ({"use_sliding_window": True}, "use_sliding_window true; only false is implemented"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rotary scaling yarn; none is implemented"),
        ({"head_dim": 15}, "of head_dim 15 is no even number of dimensions"),
        ({"vocab_size": "120"}, "vocab_size: '120' is not allowed; it must be a whole number of at least 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0 is not allowed"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not allowed; it must be at most 4096"),
        ({"num_attention_heads": 10**9}, "num_attention_heads: 1000000000 is not allowed; it must be at most 4096"),
        ({"rms_norm_eps": None}, "no rms_norm_eps"),
        (
            {"rms_norm_eps": float("nan")},
            "rms_norm_eps: nan is not allowed; it must be a number above 0, at most 1e+30",
        ),
        ({"rope_theta": float("inf")}, "rope_theta: inf is not allowed"),
        ({"rope_theta": 10**400}, "rope_theta: 1000"),
        ({"partial_rotary_factor": float("nan")}, "partial_rotary_factor: nan is not allowed"),
        ({"rotary_dim": "8"}, "rotary_dim: '8' is not allowed; it must be a whole number of at least 1"),
        ({"rotary_dim": 10**400}, "rotary_dim: 1000"),
        ({"num_attention_heads": 5}, "num_attention_heads 5 is no multiple of num_key_value_heads 2"),
        ({"model_type": "llama"}, "model_type 'llama'; known are sdar, qwen3, sdar_moe, qwen3_moe, llada2_moe"),
    ],
)
def test_what_is_not_implemented_is_refused(directory, changes, problem):
    edit(directory / "config.json", **changes)
    faults = faults_of(directory)
    assert any(problem in fault for fault in faults), faults
    assert all(fault.startswith(str(directory / "config.json")) for fault in faults)


@pytest.mark.parametrize("family", ["sdar_moe"])
@pytest.mark.parametrize("value", [1, "0", True, [["x"]], [-1], [0.5]])
def test_layers_without_experts_are_a_list_of_layers(directory, value):
    edit(directory / "config.json", mlp_only_layers=value)
    assert any(
        "mlp_only_layers: " in fault and "must be a list of layers below 3" in fault for fault in faults_of(directory)
    )


def test_the_architecture_stands_in_for_the_model_type_and_must_not_contradict_it(directory, family):
    path = directory / "config.json"
    edit(path, model_type=None)
    assert describe(ModelSpec(str(directory), block_size=4, mask_id=MASK)).described.family == family
    edit(path, model_type={"sdar": "sdar_moe", "sdar_moe": "llada2_moe", "llada2": "sdar"}[family])
    assert any("contradicts architectures" in fault for fault in faults_of(directory))


@pytest.mark.parametrize("family", ["llada2"])
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"n_group": 3}, "8 experts in n_group 3, topk_group 2, cannot give num_experts_per_tok 3"),
        ({"n_group": 8, "topk_group": 2}, "8 experts in n_group 8"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok 9 exceeds num_experts 8"),
        ({"num_experts": None}, "no num_experts"),
        ({"rotary_dim": 4}, "rotary_dim 4 contradicts partial_rotary_factor 0.5 of head_dim 16"),
        ({"use_qkv_bias": True}, "use_qkv_bias true; only false"),
        ({"score_function": "softmax"}, 'score_function "softmax"; only "sigmoid"'),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob: 'yes' is not true or false"),
    ],
)
def test_odd_mixtures_are_refused(directory, changes, problem):
    edit(directory / "config.json", **changes)
    assert any(problem in fault for fault in faults_of(directory))


# -- Tokens and block size ------------------------------------------------------------------------------------------


def facts_of(directory, **spec):
    return describe(ModelSpec(str(directory), **spec)).facts


@pytest.mark.parametrize("family", ["sdar"])
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("SDAR-8B-Chat", 4),
        ("SDAR-8B-Chat-b4", 4),
        ("SDAR-1.7B-Chat-b64", 64),
        ("MBD-Math-SDAR-8B-Chat-b32", 32),
        ("models--JetLM--SDAR-8B-Chat-b16/snapshots/0123abc", 16),
        ("SDAR-30B-A3B-Chat-b8-mine", 8),
    ],
)
def test_the_block_size_is_in_the_published_name(directory, tmp_path, name, size):
    moved = tmp_path / name
    moved.parent.mkdir(parents=True, exist_ok=True)
    directory.rename(moved)
    facts = facts_of(moved, mask_id=MASK)
    assert facts.info.block_size == size
    assert facts.block_size_from != "config.json"
    stated = facts_of(moved, mask_id=MASK, block_size=3)
    assert (stated.info.block_size, stated.block_size_from) == (3, "stated")
    edit(moved / "config.json", block_size=size)
    assert facts_of(moved, mask_id=MASK).block_size_from == "config.json"
    if "-b" in name:
        edit(moved / "config.json", block_size=5)
        (fault,) = faults_of(moved, describe, block_size=None)
        assert f"block_size: 5 (config.json) contradicts {size} (name" in fault
        assert facts_of(moved, mask_id=MASK, block_size=5).info.block_size == 5, "what is stated wins"


def test_a_block_size_that_nothing_says_is_asked_for_and_llada2_has_32(directory, family):
    if family == "llada2":
        assert facts_of(directory, mask_id=MASK).info.block_size == 32
    else:
        assert (
            "no block_size: neither config.json nor the name model says it"
            in faults_of(directory, describe, block_size=None)[0]
        )


@pytest.mark.parametrize("family", ["sdar", "llada2"])
@pytest.mark.parametrize(
    ("ending", "odd"),
    [
        ("-b32_v2", "b32_v2"),
        ("-b32.bak", "b32.bak"),
        ("-b32v2", "b32v2"),
        ("-b32k", "b32k"),
        (".b32", "b32"),
        ("-b1024", "b1024"),
        ("-b-32", "b-32"),
        ("b32", "b32"),
        ("-block32", "block32"),
        ("-block_size=32", "block_size=32"),
        ("-32block", "32block"),
        ("-bs32", "bs32"),
        ("-b32-bs16", "bs16"),
    ],
)
def test_a_name_that_looks_like_a_block_size_is_not_guessed_at(directory, tmp_path, family, ending, odd):
    moved = directory.rename(tmp_path / f"{'SDAR-8B' if family == 'sdar' else 'LLaDA2.0-mini'}-Chat{ending}")
    (fault,) = faults_of(moved, describe, block_size=None)
    assert f"no block_size: the name {moved.name} holds {odd!r}, which is not written as published ones are" in fault
    assert fault.endswith(STATE_BLOCK)
    assert facts_of(moved, mask_id=MASK, block_size=8).info.block_size == 8
    edit(moved / "config.json", block_size=32)
    assert facts_of(moved, mask_id=MASK).info.block_size == 32


@pytest.mark.parametrize("family", ["sdar"])
@pytest.mark.parametrize(
    ("link", "target", "found"),
    [
        ("prod", "SDAR-8B-Chat-b32", 32),
        ("SDAR-8B-Chat-b32", "a1b2c3", 32),
        ("SDAR-8B-Chat-b32", "mine-b32", 32),
        ("SDAR-8B-Chat-b32", "models--JetLM--SDAR-8B-Chat-b32/snapshots/0123abc", 32),
        ("prod", "SDAR-8B-Chat", 4),
        ("SDAR-8B-Chat-b32", "SDAR-8B-Chat-b4", "block_size: 32 (name SDAR-8B-Chat-b32) contradicts 4 (name SDAR-8B-"),
        ("SDAR-8B-Chat-b32", "SDAR-8B-Chat", "contradicts 4 (published for names such as SDAR-8B-Chat, without -b)"),
        ("SDAR-8B-Chat-b32", "models--JetLM--SDAR-8B-Chat-b16/snapshots/0123abc", "contradicts 16 (name SDAR-8B-Cha"),
        ("SDAR-8B-Chat", "store-b32.bak", "no block_size: the name store-b32.bak holds 'b32.bak'"),
        ("prod", "store", "no block_size: neither config.json nor the name prod or store says it"),
    ],
)
def test_a_link_and_what_it_leads_to_both_have_a_name(directory, tmp_path, link, target, found):
    (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
    directory.rename(tmp_path / target)
    (tmp_path / link).symlink_to(target)
    if isinstance(found, int):
        assert facts_of(tmp_path / link, mask_id=MASK).info.block_size == found
    else:
        (fault,) = faults_of(tmp_path / link, describe, block_size=None)
        assert found in fault


@pytest.mark.parametrize("name", ["<|MASK|>", "<|mask|>"])
def test_the_mask_is_a_special_token(directory, name):
    write_tokenizer(directory, {name: 115, "<|im_end|>": 116, "<end>": END})
    facts = facts_of(directory, block_size=4)
    assert (facts.info.mask_id, facts.mask_from) == (115, f"{name} of the tokenizer")
    assert facts.info.vocab_size == 119, "ids that the tokenizer does not know are never proposed"
    edit(directory / "config.json", mask_token_id=115)
    assert facts_of(directory, block_size=4).mask_from == "config.json"


def test_whatever_names_the_mask_must_agree_with_the_tokenizer(directory):
    write_tokenizer(directory, {"<|MASK|>": 115, "<mask>": 114, "<|im_end|>": 116, "<end>": END})
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert "mask token: 115 (<|MASK|> of the tokenizer) contradicts 114 (<mask> of the tokenizer)" in fault
    edit(directory / "config.json", mask_token_id=114)
    assert facts_of(directory, block_size=4).info.mask_id == 114, "one of several is meant"
    edit(directory / "config.json", mask_token_id=5)
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert f"mask token: 5 (config.json) contradicts 115 (<|MASK|> of the tokenizer); {STATE_MASK}" in fault
    edit(directory / "config.json", mask_token_id=None)
    edit(directory / "special_tokens_map.json", mask_token={"content": "w9"})
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert "mask token: 9 (w9 of special_tokens_map.json) contradicts 115 (<|MASK|> of the tokenizer)" in fault
    edit(directory / "config.json", mask_token_id=115)
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert "mask token: 115 (config.json) contradicts 9 (w9 of special_tokens_map.json)" in fault
    assert facts_of(directory, block_size=4, mask_id=9).info.mask_id == 9, "what is stated wins"


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"architectures": [{}]}),
        ("config.json", {"architectures": 3}),
        ("config.json", {"block_size": [4]}),
        ("config.json", {"mask_token_id": "<|MASK|>"}),
        ("generation_config.json", {"eos_token_id": [[1]]}),
        ("special_tokens_map.json", {"mask_token": ["x"]}),
        ("added_tokens.json", {"<|MASK|>": "many"}),
        ("added_tokens.json", {"<|MASK|>": float("inf")}),
        ("tokenizer.json", {"added_tokens": [3]}),
        ("tokenizer.json", {"model": {"vocab": {"a": "b"}}}),
    ],
)
def test_odd_values_are_complained_of_or_ignored_and_never_a_traceback(directory, file, changes):
    edit(directory / file, **changes)
    with suppress(CheckpointError):
        facts_of(directory)


def test_older_tokenizers_keep_added_tokens_in_a_file_of_their_own(directory):
    (directory / "added_tokens.json").write_text(json.dumps({"<|MASK|>": 117}))
    assert facts_of(directory, block_size=4, end_ids=(1,)).info.mask_id == 117


@pytest.mark.parametrize(("family", "mask"), [("sdar", 151669), ("sdar_moe", 151669), ("llada2", 156895)])
def test_the_published_mask_is_the_last_resort(directory, mask):
    assert "mask token unknown" in faults_of(directory, describe, mask_id=None)[0]
    edit(directory / "config.json", vocab_size=mask + 9)
    assert facts_of(directory, block_size=4).info.mask_id == mask


@pytest.mark.parametrize(("family", "mask"), [("sdar", 151669), ("llada2", 156895)])
def test_the_published_mask_is_taken_only_where_the_tokenizer_has_no_other_token(directory, family, mask):
    edit(directory / "config.json", vocab_size=mask + 9)
    write_tokenizer(directory, {"<|im_end|>": 116, "<tool>": mask, "<end>": END})
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert f"mask token unknown: no file names it, and that of {family}, {mask}, is '<tool>' in this tokenizer" in fault
    assert fault.endswith(STATE_MASK)
    write_tokenizer(directory, {"<|im_end|>": 116, "<last>": mask - 1, "<end>": END})
    info = facts_of(directory, block_size=4).info
    assert (info.mask_id, info.vocab_size) == (mask, mask + 1), "the id after those that the tokenizer knows"
    write_tokenizer(directory, {"<|im_end|>": 116, "<last>": mask + 1, "<end>": END})
    assert facts_of(directory, block_size=4).info.mask_id == mask, "between others"
    write_tokenizer(directory, {"<|im_end|>": 116, "<last>": mask - 2, "<end>": END})
    (fault,) = faults_of(directory, describe, mask_id=None)
    assert "mask token unknown: no file names it, and the tokenizer has none of <|MASK|>, <|mask|>, " in fault


def test_a_vocabulary_that_is_a_list_is_counted(directory):
    """As Unigram tokenizers keep it: tokens and scores, the id is the place."""
    tokens = [["<unk>", 0.0], ["<|MASK|>", 0.0], ["<|im_end|>", 0.0], *([f"w{number}", -1.0] for number in range(97))]
    added = [{"content": name, "id": number} for number, (name, _) in enumerate(tokens[:3])]
    tokenizer = {"model": {"type": "Unigram", "vocab": tokens}, "added_tokens": added}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    info = facts_of(directory, block_size=4, end_ids=(50,)).info
    assert (info.vocab_size, info.mask_id) == (100, 1)
    for odd in (3, ["a"], {"a": "b"}, {"a": -1}, [[]]):
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer | {"model": {"vocab": odd}}))
        (fault,) = faults_of(directory, describe, mask_id=None)
        assert fault.startswith(f"{directory / 'tokenizer.json'}: model.vocab is neither a map from tokens to ids nor")
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer | {"model": {}}))
    assert facts_of(directory, block_size=4, end_ids=(50,)).info.vocab_size == 120, "added tokens are not all"


def test_a_turn_ends_with_what_the_files_or_the_tokenizer_say(directory):
    config, generation = directory / "config.json", directory / "generation_config.json"
    generation.unlink(missing_ok=True)
    edit(config, eos_token_id=END)
    assert facts_of(directory, block_size=4, mask_id=MASK).info.end_ids == (END,)
    write_tokenizer(directory, {"<|im_end|>": 111, "<|role_end|>": 112, "</s>": 113, "<|MASK|>": MASK})
    edit(generation, eos_token_id=[112, 7])
    facts = facts_of(directory, block_size=4)
    assert facts.info.end_ids == (112, 7, 111, 113)
    assert facts.end_from == "generation_config.json and <|im_end|> and </s>"
    assert facts_of(directory, block_size=4, end_ids=(3,)).info.end_ids == (3,)
    edit(generation, eos_token_id=[MASK])
    fault = faults_of(directory, describe)[0]
    assert (
        f"end token {MASK} (generation_config.json and <|im_end|> and <|role_end|> and </s>) is the mask token" in fault
    )
    assert fault.endswith("state end_ids under source: {engine: ...} of the grid file (engine inspect: --end-ids N,N)")
    edit(generation, eos_token_id=[112, 7777])
    assert "end tokens [7777] (generation_config.json" in faults_of(directory, describe)[0]
    assert "end tokens unknown: no file names an eos_token_id" in faults_of(directory, describe, end_ids=())[0]


def test_a_chat_template_is_noticed_and_not_run(directory):
    assert not facts_of(directory, block_size=4, mask_id=MASK).has_chat_template
    edit(directory / "tokenizer_config.json", chat_template="{{ 1 / 0 }}")
    assert facts_of(directory, block_size=4, mask_id=MASK).has_chat_template


@pytest.mark.parametrize(
    "content", ["[1]", "{", "\xff", f'{{"a": {"[" * 10**5}', "version https://git-lfs.github.com/spec/v1"]
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("family", ["sdar"])
def test_json_files_that_are_none_are_named(directory, name, content):
    (directory / name).write_text(content, encoding="latin-1")
    (fault,) = faults_of(directory, mask_id=None, end_ids=None)
    assert fault.startswith(f"{directory / name}: ")
