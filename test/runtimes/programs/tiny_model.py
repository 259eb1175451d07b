"""Writes a model of llama's architecture with random weights, which produces noise:
`tiny_model.py FILE`."""

import sys

import numpy as np
from gguf import GGUFWriter, TokenType

LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT = 2, 64, 4, 128, 4096

# One token for each byte, so that it can read and write every text, and a word for each
# letter, so that it writes some.
SPECIAL = [("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
BYTES = [(f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)]
WORDS = [(f"\u2581{first}{second}", TokenType.NORMAL) for first in "bdfgklmnprst" for second in "aeiou"]
TOKENS = SPECIAL + BYTES + WORDS

random = np.random.default_rng(42)


def weights(*shape: int) -> np.ndarray:
    return random.normal(0, 0.2, shape).astype(np.float32)


writer = GGUFWriter(sys.argv[1], "llama")
writer.add_name("tiny")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(HIDDEN)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_rope_dimension_count(WIDTH // HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_vocab_size(len(TOKENS))
writer.add_tokenizer_model("llama")
writer.add_token_list([text for text, _ in TOKENS])
writer.add_token_scores([0.0] * len(TOKENS))
writer.add_token_types([kind for _, kind in TOKENS])
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_unk_token_id(0)
writer.add_add_bos_token(True)

writer.add_tensor("token_embd.weight", weights(len(TOKENS), WIDTH))
for layer in range(LAYERS):
    block = f"blk.{layer}"
    writer.add_tensor(f"{block}.attn_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor(f"{block}.ffn_norm.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"{block}.{name}.weight", weights(WIDTH, WIDTH))
    writer.add_tensor(f"{block}.ffn_gate.weight", weights(HIDDEN, WIDTH))
    writer.add_tensor(f"{block}.ffn_up.weight", weights(HIDDEN, WIDTH))
    writer.add_tensor(f"{block}.ffn_down.weight", weights(WIDTH, HIDDEN))
writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
# Bytes and ends are never the likeliest tokens, so it writes words until it is stopped.
output = weights(len(TOKENS), WIDTH)
output[: len(SPECIAL) + len(BYTES)] = 0
writer.add_tensor("output.weight", output)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
