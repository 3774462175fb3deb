"""One file a domain; each defines ``DOMAIN``. Found by file name: see :func:`dprl.experiments.domain.load_domain`."""
