//! Pure functions of schema and value: validate, default, prune, patch, apply.
