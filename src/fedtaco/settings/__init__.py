"""What a run is: its settings, each declared once, and the specification that holds them with live objects."""
