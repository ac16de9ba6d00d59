"""Virtual DGX Sparks: `python -m lab up pair`. What is real in them and what is simulated: lab/README.md."""
