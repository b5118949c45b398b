"""Read and write certificates, challenges and accounts at certificate authorities."""

from engine.receiving.certificates.types import DueCertificate, StoredAcmeAccount, StoredCertificate
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
WANT = _SQL.command("want_certificate")
CLAIM_DUE = _SQL.rows("claim_due_certificate", DueCertificate)
SAVE = _SQL.command("save_certificate")
SAVE_FAILURE = _SQL.command("save_certificate_failure")
ENDS = _SQL.command("certificate_ends")
READ_MANY = _SQL.rows("read_certificates", StoredCertificate)
READ_ACCOUNT = _SQL.rows("read_acme_account", StoredAcmeAccount)
INSERT_ACCOUNT = _SQL.command("insert_acme_account")
SAVE_ACCOUNT = _SQL.command("save_acme_account")
FORGET_ACCOUNT = _SQL.command("forget_acme_account")
PUT_CHALLENGE = _SQL.command("put_challenge")
READ_CHALLENGE = _SQL.command("read_challenge")
