"""The servers that a team shares: PostgreSQL, Prefect, MLflow and a store for files, on one machine."""
