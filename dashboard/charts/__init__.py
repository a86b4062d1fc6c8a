"""What is drawn: samples kept of each frame, the series cut from them, and plotly figures. Pure functions only."""
