"""Sub-accounts: accounts below another, with everything of their own but people, plan and monthly allowance."""
