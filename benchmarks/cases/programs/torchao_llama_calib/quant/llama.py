from transformers import LlamaConfig, LlamaForCausalLM


def tiny(vocab=96, hidden=32, layers=1):
    config = LlamaConfig(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=2 * hidden,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, use_cache=False, tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).eval()
