/* Stands for Zephyr's header of this name: the samples use nothing of it. */
