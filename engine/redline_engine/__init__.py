"""Block-diffusion decoding engine of Redline."""
