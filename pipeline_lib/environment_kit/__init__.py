"""What several environments are made of: programs in the sandbox, models on servers, the vocabulary of problems."""
