#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# docs/huggingface.py KIND MODEL FILE [POSITIONS] - weights of Hugging Face's transformers for the networks of
# pergrad/models.hpp
"""KIND is gpt2, llama, bert (also for RoBERTa) or vit; MODEL a name or a folder; FILE the safetensors
file to write; POSITIONS those of the network, if it has fewer (gpt2, bert).

Needs PyTorch, transformers and safetensors. Files of bfloat16 or float16 become float32, which is exact. The functions
take a state dict and return tensors with pergrad's names, in the order of the network's parameters.
"""

import sys


def gpt2(state, positions=None):
    """GPT2LMHeadModel -> models::gpt2<Positions, ...>. Its projections are [in, out] and turned round."""
    parts = {"ln_1.": "0.0.", "attn.c_attn.": "0.1.in_proj_", "attn.c_proj.": "0.1.out_proj.", "ln_2.": "1.0.",
             "mlp.c_fc.": "1.1.", "mlp.c_proj.": "1.3."}
    state = {name.removeprefix("transformer."): value for name, value in state.items()}
    blocks = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("h."))
    result = {"0.weight": state["wte.weight"], "1.weight": state["wpe.weight"][:positions]}
    for b in range(blocks):
        for theirs, ours in parts.items():
            for kind in ("weight", "bias"):
                value = state[f"h.{b}.{theirs}{kind}"]
                result[f"{2 + b}.{ours}{kind}"] = value.t() if value.dim() == 2 else value
    for kind in ("weight", "bias"):
        result[f"{2 + blocks}.{kind}"] = state[f"ln_f.{kind}"]
    return result


def llama(state):
    """LlamaForCausalLM -> models::llama<...>: places for prefixes, and nothing else."""
    state = {name.removeprefix("model."): value for name, value in state.items()}
    blocks = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))
    modules = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
               "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    result = {"0.weight": state["embed_tokens.weight"]}
    result |= {f"{1 + b}.{name}.weight": state[f"layers.{b}.{name}.weight"] for b in range(blocks) for name in modules}
    result[f"{1 + blocks}.weight"] = state["norm.weight"]
    if "lm_head.weight" in state and state["lm_head.weight"].data_ptr() != state["embed_tokens.weight"].data_ptr():
        result[f"{2 + blocks}.weight"] = state["lm_head.weight"]
    return result


def encoder(state, first, parts):
    """Blocks of an encoder from place `first` on."""
    blocks = 1 + max(int(name.split(".")[0]) for name in state)
    return {f"{first + b}.{ours}.{kind}": state[f"{b}.{theirs}.{kind}"]
            for b in range(blocks) for ours, theirs in parts.items() for kind in ("weight", "bias")}, first + blocks


def under(state, prefix):
    return {name[len(prefix):]: value for name, value in state.items() if name.startswith(prefix)}


def bert(state, positions=None):
    """BertForSequenceClassification, RobertaForSequenceClassification -> models::bert_classifier<...>. The second token
    type's row has no place; RoBERTa's positions begin behind its padding id, at row 2."""
    roberta = any(name.startswith("roberta.") for name in state)
    inner = under(state, "roberta." if roberta else "bert.")
    table = inner["embeddings.position_embeddings.weight"][2 if roberta else 0:]
    result = {"0.weight": inner["embeddings.word_embeddings.weight"], "1.weight": table[:positions],
              "2.bias": inner["embeddings.token_type_embeddings.weight"][0]}
    for kind in ("weight", "bias"):
        result[f"3.{kind}"] = inner[f"embeddings.LayerNorm.{kind}"]
    same = ["attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
            "output.LayerNorm"]
    parts = {f"attention.{name}": f"attention.self.{name}" for name in ("query", "key", "value")}
    blocks, end = encoder(under(inner, "encoder.layer."), 4, parts | {name: name for name in same})
    result |= blocks
    dense, out = (("classifier.dense", "classifier.out_proj") if roberta else ("bert.pooler.dense", "classifier"))
    for kind in ("weight", "bias"):     # behind take_positions and mean_over_positions
        result[f"{end + 2}.0.{kind}"] = state[f"{dense}.{kind}"]
    for kind in ("weight", "bias"):
        result[f"{end + 2}.2.{kind}"] = state[f"{out}.{kind}"]
    return result


def vit(state):
    """ViTForImageClassification -> models::vit<...>. The class token stands behind the patches."""
    inner = under(state, "vit.")
    patches = "embeddings.patch_embeddings.projection"
    result = {f"0.{kind}": inner[f"{patches}.{kind}"] for kind in ("weight", "bias")}
    result["3.bias"] = inner["embeddings.cls_token"].reshape(-1)
    result["4.weight"] = inner["embeddings.position_embeddings"][0].roll(-1, 0)
    parts = {"layernorm_before": "layernorm_before", "attention.query": "attention.q_proj",
             "attention.key": "attention.k_proj", "attention.value": "attention.v_proj",
             "attention.output.dense": "attention.o_proj", "layernorm_after": "layernorm_after",
             "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}
    blocks, end = encoder(under(inner, "layers."), 5, parts)
    result |= blocks
    for kind in ("weight", "bias"):
        result[f"{end}.{kind}"] = inner[f"layernorm.{kind}"]
    for kind in ("weight", "bias"):     # behind select_last
        result[f"{end + 2}.0.{kind}"] = state[f"classifier.{kind}"]
    return result


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in ("gpt2", "llama", "bert", "vit"):
        sys.exit(__doc__)
    import transformers
    from safetensors.torch import save_file
    kinds = {"gpt2": ("AutoModelForCausalLM", gpt2), "llama": ("AutoModelForCausalLM", llama),
             "bert": ("AutoModelForSequenceClassification", bert), "vit": ("AutoModelForImageClassification", vit)}
    loader, renamed = kinds[sys.argv[1]]
    model = getattr(transformers, loader).from_pretrained(sys.argv[2])
    stored = {str(value.dtype).removeprefix("torch.") for value in model.state_dict().values()}
    cut = [int(sys.argv[4])] if len(sys.argv) == 5 else []
    tensors = {name: value.float().contiguous() for name, value in renamed(model.state_dict(), *cut).items()}
    save_file(tensors, sys.argv[3])
    print(f"{sum(value.numel() for value in tensors.values())} parameters, {', '.join(sorted(stored))} -> float32")


if __name__ == "__main__":
    main()
