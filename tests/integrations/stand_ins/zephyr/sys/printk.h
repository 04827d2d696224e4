/* Stands for Zephyr's header of this name. */
#ifndef PRINTK_H
#define PRINTK_H

void printk(const char *format, ...);

#endif
