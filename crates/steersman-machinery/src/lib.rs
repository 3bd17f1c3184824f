//! Kubernetes vocabulary: names, keys, objects, selectors, quantities, errors.
