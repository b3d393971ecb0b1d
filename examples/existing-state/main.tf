# Terraform has applied this code before, and its state lies beside it. The last resource is not applied yet.
resource "terraform_data" "database" {
  input = "made by hand"
}

resource "terraform_data" "replica" {
  input = terraform_data.database.output
}
