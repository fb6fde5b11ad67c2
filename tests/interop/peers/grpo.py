"""A real GRPO step on the processor: a tiny model with random weights, tools of an environment."""

# mypy: ignore-errors
# These packages are in the virtual environment that this runs in, and only there.

import json
import pickle  # noqa: TID251 - a trainer's workers get the factory so
import sys
from pathlib import Path

import torch
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from rayfine_env.integrations.trl import environment_factory

target, failing, out = sys.argv[1:]


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and whole tool calls as single tokens, so that random weights call tools too."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"]
    calls = [
        f'<tool_call>\n{{"name": "add", "arguments": {{"amount": {n}}}}}\n</tool_call><|im_end|>'
        for n in range(12)
    ]
    vocabulary = {text: n for n, text in enumerate(alphabet)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(text, normalized=False) for text in (*marks, *calls)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    return fast


def main() -> None:
    torch.manual_seed(0)
    words = tokenizer()
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=16, max_position_embeddings=2048,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    before = model.model.layers[0].mlp.up_proj.weight.detach().clone()
    made = environment_factory(target, env_vars={"FAILS": failing})
    factory = pickle.loads(pickle.dumps(made))
    trainer = GRPOTrainer(
        model=model,
        environment_factory=factory,
        processing_class=words,
        args=GRPOConfig(
            output_dir=out, max_steps=1, per_device_train_batch_size=4, num_generations=4,
            max_completion_length=48, use_cpu=True, report_to=[], save_strategy="no",
            logging_steps=1, learning_rate=0.1, max_tool_calling_iterations=2, beta=0.0,
        ),
    )  # fmt: skip
    trainer.train()
    after = model.model.layers[0].mlp.up_proj.weight.detach()
    logs = next(entry for entry in trainer.state.log_history if "reward" in entry)
    report = {
        "tools": [tool.__name__ for tool in trainer.tools],
        "moved": float((after - before).abs().max()),
        "reward": logs["reward"],
        "calls": logs.get("tools/call_frequency"),
        "rewards": [environment.get_reward() for environment in trainer.environments],
    }
    print(json.dumps(report))


main()
