"""From chats and text to tokenised shards: chat -> template -> encode -> build -> shards.

`shards` alone is needed for training; nothing here imports torch but `regenerate`.
"""
