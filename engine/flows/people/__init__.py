"""Work on people: signing up and in, sessions, second factors, profiles."""
