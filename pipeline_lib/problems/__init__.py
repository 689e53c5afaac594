"""Where problems come from: generators and datasets, their splits and manifests."""
