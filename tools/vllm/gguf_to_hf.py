#!/usr/bin/env python3
"""Turn a GGUF of the Llama architecture into a Hugging Face folder that vLLM loads.

Weights are dequantised to bfloat16; the tokenizer and the chat template come from the GGUF too.
Written for SmolLM2 (architecture "llama", plain rope): anything else is refused, not guessed.
Needs gguf, numpy, torch, safetensors and transformers.
"""
import argparse
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import AutoTokenizer

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Source:
    """A GGUF file: its fields by name, its tensors by their new names."""

    def __init__(self, path):
        self.path, self.reader = path, gguf.GGUFReader(path)
        scaled = any("rope.scaling" in name for name in self.reader.fields)
        if self.field("general.architecture") != "llama" or scaled:
            sys.exit(f"{path}: only the architecture llama without rope scaling is understood")
        self.heads = self.field("llama.attention.head_count")
        self.kv_heads = self.field("llama.attention.head_count_kv")

    def field(self, name):
        if name not in self.reader.fields:
            sys.exit(f"{self.path}: no field {name}")
        return self.reader.fields[name].contents()

    def tensors(self):
        return dict(self._convert(tensor) for tensor in self.reader.tensors)

    def _convert(self, tensor):
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.removesuffix(".weight").split(".")
        if part[0] != "blk":
            name = TOP[part[0]]
        else:
            name = f"model.layers.{part[1]}.{LAYER[part[2]]}"
            if part[2] == "attn_q":
                weight = unpermute(weight, self.heads)
            elif part[2] == "attn_k":
                weight = unpermute(weight, self.kv_heads)
        contiguous = torch.from_numpy(np.ascontiguousarray(weight))
        return f"{name}.weight", contiguous.to(torch.bfloat16)

    def special_tokens(self):
        return {"bos_token_id": self.field("tokenizer.ggml.bos_token_id"),
                "eos_token_id": self.field("tokenizer.ggml.eos_token_id"),
                "pad_token_id": self.field("tokenizer.ggml.padding_token_id")}

    def config(self):
        norm_eps = self.field("llama.attention.layer_norm_rms_epsilon")
        return self.special_tokens() | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "head_dim": self.field("llama.rope.dimension_count"),
            "hidden_act": "silu",
            "hidden_size": self.field("llama.embedding_length"),
            "initializer_range": 0.02,
            "intermediate_size": self.field("llama.feed_forward_length"),
            "max_position_embeddings": self.field("llama.context_length"),
            "mlp_bias": False,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.field("llama.block_count"),
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": float(f"{norm_eps:.6g}"),  # stored as float32: 9.99999974e-06
            "rope_theta": self.field("llama.rope.freq_base"),
            "rope_scaling": None,
            "tie_word_embeddings": not any(t.name == "output.weight" for t in self.reader.tensors),
            "torch_dtype": "bfloat16",
            "vocab_size": self.field("llama.vocab_size"),
            "use_cache": True,
        }


def unpermute(weight, heads):
    """Undo the interleaving of rows that the GGUF conversion applies to q and k for its rope."""
    rows = weight.shape[0]
    halves = weight.reshape(heads, rows // heads // 2, 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path, help="the model file")
    parser.add_argument("out", type=pathlib.Path, help="folder for the result")
    arguments = parser.parse_args()
    source, out = Source(arguments.gguf), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    tensors = source.tensors()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(source.config(), indent=1) + "\n")
    (out / "generation_config.json").write_text(json.dumps(source.special_tokens()) + "\n")
    tokenizer = AutoTokenizer.from_pretrained(source.path.parent, gguf_file=source.path.name)
    tokenizer.save_pretrained(out)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    print(f"{len(tensors)} tensors, {parameters / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
