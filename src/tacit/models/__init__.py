"""Model families through transformers: shapes, losses, loading and saving."""
