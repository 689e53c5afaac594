"""What each stage of the chain does, one file each."""
