"""How operators are described, checked and called, and what several families share. No operator is here."""
