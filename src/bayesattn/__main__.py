"""`python -m bayesattn`, and with it `accelerate launch -m bayesattn`."""

from bayesattn_command import main

if __name__ == "__main__":
    main()
