"""Run directories from trainers that are not ours: a context, Hugging Face, Lightning."""
