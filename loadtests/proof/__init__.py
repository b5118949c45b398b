"""`ops proof`: run a fixed set of drills and benches on one revision, and write down, sign and publish what they found.

`sets` lists the parts of a set, `run` runs them as commands of their own and keeps their records in a folder, `record`
is the file that they become, `verify` judges that file, `page` and `publish` bring its figures into the documentation.
"""
