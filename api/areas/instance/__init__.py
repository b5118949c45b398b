"""Public facts about this installation."""
