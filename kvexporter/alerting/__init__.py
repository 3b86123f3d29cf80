"""The pool's alerts, sent straight from here to Alertmanager and to webhooks: the same ones as the rules give."""
