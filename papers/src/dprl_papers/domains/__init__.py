"""One file per domain; each defines ``DOMAIN``. See :func:`dprl_papers.harness.domain.load_domain`."""
