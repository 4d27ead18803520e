"""The papers' numbers and ours as one HTML file that needs no network: `resnets report`. No torch here."""
