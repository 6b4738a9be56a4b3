"""Coverage: how much of an account or a conversation is stored."""
