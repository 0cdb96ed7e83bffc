"""The nouns: Budget, Run, Reservation, Lease, and what Tenure reads of Kubernetes' own.

Records are in ``budget``, ``run``, ``reservation``, ``lease``, ``core`` and ``policy``; reading and
checking them:

- ``decode.read`` from text to objects, with all errors at once;
- ``validate.validate`` and ``validate.check_policy`` the rules of one object;
- ``defaults.default`` what is left out, filled in;
- ``relations.check_owner``, ``check_update``, ``check_family`` the rules between objects;
- ``owners`` the grammar of owners and of the patterns that name them.

Nothing is imported here: a command that needs one noun pays for one noun.
"""
