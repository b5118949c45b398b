"""What spans areas: accepting, settling."""
