"""What price sources share: amounts, cached answers, the price jobs."""
