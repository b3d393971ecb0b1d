package ecs

// Network is a VPC with what RunTask may name of it, by their ids.
type Network struct {
	VPC                     string
	Subnets, SecurityGroups []string
}

// AddNetwork tells ECS of a VPC. As long as it is told of none, every subnet and security group exists and fits.
func (s *Service) AddNetwork(n Network) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range n.Subnets {
		s.subnets[id] = n.VPC
	}
	for _, id := range n.SecurityGroups {
		s.groups[id] = n.VPC
	}
}

// reach refuses a network that tasks cannot be in. The lock is held.
func (s *Service) reach(in *runIn) error {
	if len(s.subnets) == 0 && len(s.groups) == 0 {
		return nil
	}
	config, vpc := in.NetworkConfiguration.AwsvpcConfiguration, ""
	for _, id := range config.Subnets {
		of, ok := s.subnets[id]
		switch {
		case !ok:
			return invalid("Error retrieving subnet information for [%s]: The subnet ID '%[1]s' does not exist (ErrorCode: InvalidSubnetID.NotFound)", id)
		case vpc != "" && of != vpc:
			return invalid("Subnet %s does not appear to belong to the same VPC as the other input subnets.", id)
		}
		vpc = of
	}
	for _, id := range config.SecurityGroups {
		of, ok := s.groups[id]
		switch {
		case !ok:
			return invalid("Error retrieving security group information for [%s]: The security group '%[1]s' does not exist (ErrorCode: InvalidGroup.NotFound)", id)
		case of != vpc:
			return invalid("Security Group %s does not appear to belong to the same VPC as the input subnets.", id)
		}
	}
	return nil
}
