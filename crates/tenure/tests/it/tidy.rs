//! Architecture: who may know whom, and what must be where.
