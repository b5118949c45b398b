"""Sign and seal mail (DKIM, ARC), and check the SPF, DKIM, ARC and DMARC of received mail: `judge.authenticate`."""
