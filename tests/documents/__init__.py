"""README and docs are true: what they tell people to type is typed."""
