"""One process that holds a whole service and its surroundings, driven by one seed (`ops simulate`)."""
