"""Policy gradients from people who interact once each (paper 003)."""
